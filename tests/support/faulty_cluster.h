// A manager's engine, compute nodes and memory nodes in this process, speaking to each other as
// always, with faults in the data path.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "compute_node/compute_node.h"
#include "manager/serving_engine.h"
#include "memory_node/memory_node.h"
#include "tests/support/faulty_fabric.h"

namespace lamina::testing {

struct FaultyClusterOptions {
  int num_compute_nodes = 1;
  int num_memory_nodes = 2;
  int kv_head_parallel = 1;                  // as manager/cluster_config.h
  int64_t spread_tokens = 0;                 // likewise
  int num_batches = 0;                       // likewise
  int pipeline_parallel_size = 1;            // likewise, of the compute nodes
  int tensor_parallel_size = 1;              // likewise
  bool overlap = false;                      // likewise, kOn
  PollingMode polling = PollingMode::kHost;  // likewise
  NodeDevice device;                         // of every node
  Clock::duration peer_timeout = std::chrono::milliseconds(150);
  Clock::duration step_timeout = std::chrono::seconds(5);
  // Under the faults.
  std::function<std::unique_ptr<Fabric>()> open_fabric = [] {
    return OpenFabric("loopback").value();
  };
  // What happens to q, k and v.
  FaultPlan of_compute;
  // What happens to answers.
  FaultPlan of_memory;
};

class FaultyCluster {
 public:
  // Serves models/tiny-stories.
  static Result<std::unique_ptr<FaultyCluster>> Create(const FaultyClusterOptions& options);
  ~FaultyCluster();

  Engine& engine() { return *engine_; }

  // Stops everything; then how many faults there were.
  uint64_t Stop();

 private:
  FaultyCluster() = default;
  OpenLadder WithFaults(const FaultyClusterOptions& options, const FaultPlan& plan);

  std::vector<std::unique_ptr<MemoryNode>> memory_nodes_;
  std::vector<std::unique_ptr<ComputeNode>> compute_nodes_;
  std::vector<std::thread> threads_;
  std::unique_ptr<Engine> engine_;
  std::atomic<uint64_t> num_faults_{0};
};

}  // namespace lamina::testing
