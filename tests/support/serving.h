// Engines over real processes or in this process, and what comes out of them, for end-to-end tests.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/slo.h"
#include "cost/step_profile.h"
#include "manager/engine.h"
#include "manager/local_cluster.h"
#include "manager/serving_engine.h"
#include "tests/support/manager_process.h"
#include "tests/support/paths.h"

namespace lamina::testing {

// Everything that came back for one continuation.
struct Generated {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> tops;
  std::vector<TokenScore> scored;  // of the prompt
  std::vector<float> embedding;    // likewise
  FinishReason reason = FinishReason::kError;
  Status error;
  bool finished = false;
};

// Collects the events of one request. Wait returns false at the deadline.
class Collector {
 public:
  explicit Collector(int n = 1) : state_(std::make_shared<State>(n)) {}

  Engine::Sink sink() const;
  bool Wait(Deadline deadline) const;
  bool WaitForTokens(size_t count, Deadline deadline) const;  // of continuation 0
  std::vector<Generated> results() const;

 private:
  struct State {
    explicit State(int n) : results(static_cast<size_t>(n)) {}
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Generated> results;
  };
  std::shared_ptr<State> state_;
};

// Greedy, with log-probabilities; stops at the end of the text.
GenerateRequest GreedyRequest(std::vector<TokenId> prompt, int64_t max_new_tokens);

// One set-up on the shipped model.
struct Deployment {
  std::string kind = "cluster";  // "cluster" | "in-process"
  int num_compute_nodes = 1;
  int num_memory_nodes = 2;
  int num_standbys = 0;                          // s0, s1, ...
  std::string compute_device = "cpu";            // of every compute node, or in process
  int compute_threads = 1;                       // likewise; several processes share cores
  OffloadOptions offload = {};                   // likewise of every compute node
  OffloadOptions kv_offload = {};                // of a compute node that keeps the KV itself
  OffloadOptions memory_offload = {};            // of every memory node
  std::vector<StepTime> step_times = {};         // with offload.is_auto: the record
  SloRule slo = {};                              // as manager/cluster_config.h
  std::vector<std::string> memory_devices = {};  // of each memory node; empty: cpu
  TransportKind transport = TransportKind::kShm;
  int kv_head_parallel = 1;                     // as manager/cluster_config.h
  int64_t spread_tokens = 0;                    // likewise
  PipelineMode pipeline = PipelineMode::kAuto;  // likewise
  int num_batches = 0;                          // likewise
  int pipeline_parallel_size = 1;  // likewise; there are so many times num_compute_nodes
  int tensor_parallel_size = 1;    // likewise
  DType kv_dtype = DType::kBF16;
  DTypeSetting wire_dtype;
  Switch overlap = Switch::kOff;
  PollingMode polling = PollingMode::kHost;  // likewise
  Clock::duration modelled_latency{};        // with it: a modelled network of 10 GB/s
  int max_num_seqs = 32;
  int max_num_batched_tokens = 128;
  int64_t memory_bytes = int64_t{16} << 20;  // of each memory node (or the KV in process)
  bool prefix_caching = true;                // as manager/cluster_config.h
  int max_queued = 1024;
  Clock::duration peer_timeout = std::chrono::seconds(10);
  Clock::duration suspect_after = std::chrono::seconds(1);
  Clock::duration step_timeout = std::chrono::seconds(60);
  Clock::duration start_timeout = std::chrono::seconds(60);  // and until the engine gives up
  std::string model = SourcePath("/models/tiny-stories");
  LoadFormat load_format = LoadFormat::kAuto;

  std::string Name() const;  // for test names: letters, digits and '_'
};

// What a deployment says of a cluster, which has the nodes of `config`.
Result<ClusterConfig> ConfigOf(const Deployment& deployment, const ModelConfig& model,
                               ClusterConfig config = {});

struct Serving {
  std::unique_ptr<LocalCluster> cluster;    // null in process
  std::unique_ptr<ManagerProcess> manager;  // null: the engine is in this process
  std::unique_ptr<Engine> engine;           // goes first

  static Result<std::unique_ptr<Serving>> Create(const Deployment& deployment);
  // With a manager that is a process of its own, of which this process is a front.
  static Result<std::unique_ptr<Serving>> CreateWithManager(const Deployment& deployment);

  // On nodes that run already: `config` says where; the rest is as `deployment` says.
  static Result<std::unique_ptr<Serving>> Connect(ClusterConfig config,
                                                  const Deployment& deployment);
};

// Polls status() until no sequence runs, waits or is parked, and the scheduler and every ready
// memory node hold no token; "" then, else what was still held at the deadline.
std::string AwaitNoTokens(Engine& engine, Deadline deadline);

// Calls `condition` until it is true or the deadline passes; returns whether it became true.
bool AwaitTrue(const std::function<bool()>& condition, Deadline deadline);

}  // namespace lamina::testing
