#include "frontend/cluster_daemons.h"

#include <map>
#include <set>
#include <sstream>

namespace lamina {
namespace {

constexpr auto kCommandTimeout = std::chrono::seconds(30);  // a command on a host, beyond what it waits for by itself
constexpr int kTailLines = 20;

using Environment = std::vector<std::pair<std::string, std::string>>;

// Runs the script on the host, with `env` if that is this machine, and returns what it printed.
Result<std::string> RunOnHost(const ClusterConfig& config, const std::string& host, const std::string& script,
                              Clock::duration timeout = kCommandTimeout, const Environment& env = {}) {
  const Result<CommandOutput> output = RunCommand(CommandOnHost(config, host, script), Deadline::After(timeout), env);
  if (!output.ok()) return output.status().WithContext(host);
  if (output->exit_status != 0) {
    const std::string reason = output->err.substr(0, output->err.find_last_not_of('\n') + 1);
    return PeerLost(host + ": the command failed with status " + std::to_string(output->exit_status) + ": " +
                    (reason.empty() ? "no message" : reason));
  }
  return output->out;
}

// False if the process may still be there.
Status StopDaemon(const ClusterConfig& config, const DaemonRecord& daemon, Clock::duration grace, std::ostream& out) {
  const std::string script = StopScript(daemon.process, GraceSeconds(grace));
  LAMINA_ASSIGN_OR_RETURN(const std::string word, RunOnHost(config, daemon.host, script, kCommandTimeout + grace));
  const std::string who = daemon.name + " on " + daemon.host + ", pid " + std::to_string(daemon.process.pid);
  if (word == "stopped\n") {
    out << "stopped " << who << std::endl;
  } else if (word == "killed\n") {
    out << "killed " << who << ": it did not end within " << GraceSeconds(grace) << " s after SIGTERM" << std::endl;
  } else if (word == "absent\n") {
    out << "not running any more: " << who << std::endl;
  } else {
    return InternalError(who + " survived SIGKILL: it may hang inside the kernel");
  }
  return OkStatus();
}

}  // namespace

int GraceSeconds(Clock::duration grace) { return static_cast<int>(std::chrono::ceil<std::chrono::seconds>(grace).count()); }

Result<DaemonRecord> StartDaemon(const ClusterConfig& config, const DaemonCommand& command, const std::string& bin_dir) {
  const Result<std::string> printed =
      RunOnHost(config, command.host, StartScript(config, command, bin_dir), kCommandTimeout, HiddenEnvironment(config, command));
  if (!printed.ok()) return printed.status().WithContext("cannot start " + command.name);
  DaemonRecord daemon;
  daemon.name = command.name;
  daemon.host = command.host;
  std::istringstream fields(*printed);
  fields >> daemon.process.pid >> daemon.process.start_time >> std::ws;
  std::getline(fields, daemon.log);
  if (fields.fail() || daemon.process.pid <= 1)
    return InternalError(command.name + " on " + command.host + ": expected a pid, got '" + *printed + "'");
  return daemon;
}

Result<std::vector<bool>> FindDaemons(const ClusterConfig& config, const std::vector<DaemonRecord>& daemons) {
  std::map<std::string, std::vector<ProcessId>> per_host;
  for (const DaemonRecord& daemon : daemons) per_host[daemon.host].push_back(daemon.process);
  std::set<std::pair<std::string, pid_t>> running;
  for (const auto& [host, ids] : per_host) {
    LAMINA_ASSIGN_OR_RETURN(const std::string printed, RunOnHost(config, host, FindScript(ids)));
    std::istringstream pids(printed);
    for (pid_t pid = 0; pids >> pid;) running.emplace(host, pid);
  }
  std::vector<bool> result;
  for (const DaemonRecord& daemon : daemons) result.push_back(running.contains({daemon.host, daemon.process.pid}));
  return result;
}

Status StopDaemons(const ClusterConfig& config, Clock::duration grace, const ClusterStateFile& file, ClusterState* state,
                   std::ostream& out) {
  Status first_error;
  for (size_t i = state->daemons.size(); i-- > 0;) {
    const DaemonRecord& daemon = state->daemons[i];
    Status status = StopDaemon(config, daemon, grace, out);
    if (status.ok()) {
      state->daemons.erase(state->daemons.begin() + static_cast<ptrdiff_t>(i));
      status = file.Write(*state);
    } else {
      status = status.WithContext("cannot stop " + daemon.name);
    }
    if (first_error.ok()) first_error = status;
  }
  return first_error;
}

std::string TailOfLog(const ClusterConfig& config, const DaemonRecord& daemon) {
  const Result<std::string> text = RunOnHost(config, daemon.host, TailScript(daemon.log, kTailLines));
  return text.ok() ? *text : text.status().message();
}

}  // namespace lamina
