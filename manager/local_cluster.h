// A cluster whose daemons are child processes on the loopback of this machine, for the quick start,
// benchmarks and end-to-end tests. The calling process is the manager.
//
//   LocalClusterOptions options;
//   options.num_memory_nodes = 3;
//   LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LocalCluster> cluster, LocalCluster::Create(options));
//   ClusterConfig config = cluster->config();  // to which the caller adds the model and limits
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "manager/cluster_config.h"
#include "manager/process.h"
#include "transport/posix.h"

namespace lamina {

struct LocalClusterOptions {
  // The nodes to start; their hosts and ports are replaced by the loopback and free ports. Empty:
  // LocalNodes makes them from the seven options that follow.
  std::vector<NodeConfig> nodes;
  // Likewise: those that wait for a compute node's place.
  std::vector<NodeConfig> standbys;
  int num_compute_nodes = 1;  // c0, c1, ...
  // m0, m1, ... With none, attention stays on the compute node, c0.
  int num_memory_nodes = 2;
  // Of each memory node, or of c0 if there is none.
  int64_t memory_bytes = int64_t{256} << 20;
  int compute_threads = 0;            // of each compute node; 0: all cores
  int memory_threads = 1;             // of each memory node
  std::string device = "cpu";         // of compute nodes: cpu or cuda:N
  std::string memory_device = "cpu";  // of memory nodes
  // As in the cluster's YAML.
  TransportKind transport = TransportKind::kAuto;
  // The catalog of the modelled devices among `nodes`. Empty: there are none.
  std::string device_catalog;
  // The folder of the logs, NAME.log for each node. Empty: a temporary folder, which the destructor
  // removes unless a daemon ended by itself or did not listen in time. If this process is killed,
  // the next cluster removes the folder.
  std::string log_dir;
  // The folder of the daemons' programs. Empty: the running program's folder.
  std::string bin_dir;
  // How long Create and Restart wait until the daemons listen.
  Clock::duration start_timeout = std::chrono::seconds(30);
  // Asked while Create waits for the daemons: true makes it give up. Null: it never does.
  std::function<bool()> interrupted = nullptr;
};

// The nodes that Create starts, before they get their ports.
std::vector<NodeConfig> LocalNodes(const LocalClusterOptions& options);

// Owns the daemons. They end with this object, and with the thread that created it, even if that is
// killed. They do not leave for SIGTERM and SIGINT, which a service manager or a terminal may send
// to all processes: these signals are for the manager. Thread: owner.
class LocalCluster {
 public:
  // Starts the daemons on free ports and waits until they listen. kPeerLost if a daemon ends, with
  // the last lines of its log; kTimeout if one does not listen within start_timeout; kTryAgain if
  // interrupted; kNotFound if a program cannot be executed; kInternal for what the system refuses.
  static Result<std::unique_ptr<LocalCluster>> Create(const LocalClusterOptions& options);

  // Starts the nodes of `config` on its transport and with its device catalog, and writes the hosts
  // and ports that they got into `config`. For `interrupted` and errors see Create.
  static Result<std::unique_ptr<LocalCluster>> CreateFor(
      ClusterConfig& config, std::function<bool()> interrupted = nullptr);

  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;
  ~LocalCluster();

  // The cluster's description, with the nodes, the transport, the catalog and the log folder. The
  // caller takes a copy and adds the model and limits.
  const ClusterConfig& config() const { return config_; }

  // The daemons that run, by node name.
  std::map<std::string, pid_t> pids();

  // Sends a signal. If the daemon ends after it, Check and Revive do not mind, unless it was only
  // stopped or continued (SIGSTOP, SIGCONT). kNotFound if there is no such daemon or it has ended.
  Status Kill(const std::string& node, int signal);

  // Ok if all daemons run, except those whose end a Kill asked for. Otherwise kPeerLost, which
  // names a daemon that ended and says how, with the last lines of its log.
  Status Check();

  // Starts a daemon that ended again, with the same name, port and options, and waits until it
  // listens. kNotFound if there is no such daemon; kTryAgain if it does not end within a few
  // seconds; otherwise fails as Create does.
  Status Restart(const std::string& node);

  // Starts daemons again that ended by themselves, a second after it notices the end. If a daemon
  // ends again within a minute, the wait is twice as long as before, up to half a minute. Logs each
  // end with the last lines of the daemon's log. Does not wait; to be called often.
  void Revive();

  const std::string& log_dir() const { return options_.log_dir; }

 private:
  explicit LocalCluster(LocalClusterOptions options) : options_(std::move(options)) {}
  Status Start();
  Status MakeLogFolder();
  Status Spawn(const NodeConfig& node);
  Status WaitUntilListening(const NodeConfig& node, Deadline deadline);
  std::string DescribeEnd(const std::string& node);

  LocalClusterOptions options_;
  int log_owner_fd_ = -1;  // holds the lock on a temporary log_dir; -1: it is the caller's folder
  bool keep_logs_ = false;
  ClusterConfig config_;
  std::vector<UniqueFd> ports_;  // keep the ports of config_.daemons() free while no daemon listens
  std::map<std::string, ChildProcess> children_;
  std::map<std::string, bool> expected_end_;  // by node: whether a Kill asked for it
  struct Revival {
    TimePoint started{};           // when Revive started it last
    std::optional<TimePoint> due;  // when it is to be started; nullopt while it runs
    Clock::duration wait{};        // between its last end and that start
  };
  std::map<std::string, Revival> revivals_;  // daemons that ended by themselves at least once
};

}  // namespace lamina
