// A cluster of child processes on the loopback of this machine, for the quick start, benchmarks and
// end-to-end tests. The manager is the caller.
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

namespace lamina {

struct LocalClusterOptions {
  // These, on the loopback and free ports; empty: as the next seven say.
  std::vector<NodeConfig> nodes;
  int num_compute_nodes = 1;  // c0, c1, ...
  // m0, m1, ...; 0: attention stays on the compute node, c0.
  int num_memory_nodes = 2;
  int64_t memory_bytes = int64_t{256} << 20;  // of each memory node
  int compute_threads = 0;                    // of each compute node; 0: all cores
  int memory_threads = 1;                     // of each memory node
  std::string device = "cpu";                 // of compute nodes: cpu or cuda:N
  std::string memory_device = "cpu";          // of memory nodes
  std::string transport = "auto";
  std::string device_catalog;  // for modelled devices among `nodes`
  // NAME.log; "": a temporary folder, which is kept only if a daemon ended by itself. One whose
  // owner was killed is removed by the next.
  std::string log_dir;
  std::string bin_dir;                                       // "": where the running program stands
  Clock::duration start_timeout = std::chrono::seconds(30);  // until every daemon listens
  std::function<bool()> interrupted = nullptr;               // Create gives up; null: it does not
};

// The nodes that Create starts, without addresses yet.
std::vector<NodeConfig> LocalNodes(const LocalClusterOptions& options);

// Thread: owner. The daemons die with this object, and with the thread that created it even if that
// is killed; they leave for nothing else: SIGTERM and SIGINT, which may go to all processes of a
// service or a terminal, are for the manager.
class LocalCluster {
 public:
  // Starts the daemons on free ports and waits until they listen. The error names the daemon and
  // how its log ends.
  static Result<std::unique_ptr<LocalCluster>> Create(const LocalClusterOptions& options);

  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;
  ~LocalCluster();

  // One host, nodes and transport filled in; the model and the limits are the caller's.
  const ClusterConfig& config() const { return config_; }

  // Of the daemons that run, by node name.
  std::map<std::string, pid_t> pids();

  // Sends a signal. kNotFound if there is no such daemon or it ended.
  Status Kill(const std::string& node, int signal);

  // Ok while all run; else names the first that ended, how, and the end of its log. Not after a
  // Kill of the caller's own making.
  Status Check();

  // Starts a daemon again that ended, with the same name, port and options.
  Status Restart(const std::string& node);

  // Reaps daemons that ended by themselves and starts each again: a second after its end, and twice
  // as long after each further one, up to half a minute, until it has run for a minute. Returns at
  // once; to be called often.
  void Revive();

  const std::string& log_dir() const { return options_.log_dir; }

 private:
  explicit LocalCluster(LocalClusterOptions options) : options_(std::move(options)) {}
  Status Start();
  Status Spawn(const NodeConfig& node);
  Status WaitUntilListening(const NodeConfig& node, Deadline deadline);
  std::string DescribeEnd(const std::string& node);

  LocalClusterOptions options_;
  int log_owner_fd_ = -1;  // of a temporary log_dir
  bool keep_logs_ = false;
  ClusterConfig config_;
  std::map<std::string, ChildProcess> children_;
  std::map<std::string, bool> expected_end_;  // by Kill
  struct Revival {
    TimePoint started{};
    std::optional<TimePoint> due;  // it has ended
    Clock::duration wait{};        // before the next start
  };
  std::map<std::string, Revival> revivals_;  // of those that ended once
};

}  // namespace lamina
