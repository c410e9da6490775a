// From the cluster's description to commands: which daemons run where, and the shell scripts that
// start, find and stop them. Text only: `lamina cluster up --dry-run` prints what is run otherwise,
// without the mark of MarkedScript.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "manager/cluster_config.h"
#include "manager/process.h"

namespace lamina {

// What a node gets beyond the manager's drain timeout: for its goodbye.
inline constexpr auto kNodeDrainMargin = std::chrono::seconds(2);

// Name of the manager's process in state, logs and messages.
inline constexpr char kManagerName[] = "manager";

struct DaemonCommand {
  std::string name;  // the node's, or kManagerName
  std::string host;
  // argv[0] without a folder: lamina-memory-node, lamina-compute-node, lamina.
  std::vector<std::string> argv;
};

// Memory nodes, then the compute node, then the manager if `with_manager`: the order in which they
// are started.
std::vector<DaemonCommand> DaemonCommands(const ClusterConfig& config,
                                          const std::string& config_path, bool with_manager);

// True if `host` is this machine: a loopback name or address, its host name, an address of one of
// its interfaces, or a name that stands for one of these. Names are looked up once.
bool IsLocalHost(const std::string& host);

// The command that runs `script` with a POSIX shell on `host`, through config.ssh unless the host
// is this machine.
std::vector<std::string> CommandOnHost(const ClusterConfig& config, const std::string& host,
                                       const std::string& script);

// What the daemon is given in the environment of the script that starts it, because a command line
// is seen by other users and by --dry-run: the manager the API key of config.env. Others get none,
// and not our own either.
std::vector<std::pair<std::string, std::string>> HiddenEnvironment(const ClusterConfig& config,
                                                                   const DaemonCommand& daemon);

// Starts the daemon detached, its output appended to its log, and prints "PID START_TIME LOG".
// `bin_dir` is where the programs stand; on other hosts the PATH is searched after it.
std::string StartScript(const ClusterConfig& config, const DaemonCommand& daemon,
                        const std::string& bin_dir);

// `script`, with a mark on every process that it starts, and on the shell that runs it.
std::string MarkedScript(const std::string& start_id, const std::string& script);

// Prints "PID START_TIME" of each process with that mark.
std::string FindMarkedScript(const std::string& start_id);

// Prints those of the ids that run, one pid per line.
std::string FindScript(const std::vector<ProcessId>& ids);

// SIGTERM, SIGKILL after `grace_seconds`; prints one word: absent | stopped | killed | survived.
// Touches nothing unless pid and start time match.
std::string StopScript(const ProcessId& id, int grace_seconds);

// Prints the log's last lines.
std::string TailScript(const std::string& log, int num_lines);

}  // namespace lamina
