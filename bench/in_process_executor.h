// The engine without any other process: one thread carries out the orders, and attention runs in it
// too. It is the baseline that disaggregation is held against, and the simplest set-up in which the
// golden continuations are checked.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "base/dtype.h"
#include "base/inbox.h"
#include "base/mutex.h"
#include "base/worker_team.h"
#include "compute_node/step_runner.h"
#include "cost/node_device.h"
#include "manager/cluster_config.h"
#include "manager/step_executor.h"

namespace lamina {

// What a compute node with attention of its own needs.
struct InProcessOptions {
  // The weights, the limits and the type of K and V that `config`, which is resolved, gives a node
  // of a cluster that serves `model`.
  static InProcessOptions Of(const ClusterConfig& config, const ModelConfig& model);

  WeightOptions weights;
  SessionLimits limits;
  DType kv_dtype = DType::kBF16;
  int64_t kv_tokens = 0;  // token slots
  int num_threads = 0;    // 0: all cores
  NodeDevice device;      // the CPU unless another is named
};

// The config for an engine on an InProcessExecutor: one batch, as there is nothing to overlap it
// with.
inline ClusterConfig InOneProcess(ClusterConfig config) {
  config.pipeline = PipelineMode::kNone;
  config.num_batches = 1;
  return config;
}

// A StepExecutor whose only node is this process. Owns the device, the model and the thread that
// runs steps.
class InProcessExecutor : public StepExecutor {
 public:
  // Loads the weights. Returns the errors of the device and of the model's files.
  static Result<std::unique_ptr<InProcessExecutor>> Create(const InProcessOptions& options);
  ~InProcessExecutor() override;

  const ModelConfig& model() const { return model_->config; }

  std::vector<KvNode> kv_nodes() const override { return {{kSelf, kv_tokens_}}; }
  std::map<NodeId, NodeKv> kv() const override { return {}; }
  NodeId KvNodeOf(NodeId node) const override { return node; }
  void Start(std::function<void(ExecutorEvent)> on_event) override;
  void Leave(NodeId) override {}  // there is no session
  void Submit(const StepPlan& plan, std::vector<NewSequence> added) override;
  TimePoint Turn(TimePoint) override { return TimePoint::max(); }
  std::vector<NodeStatus> nodes() override;

 private:
  static constexpr NodeId kSelf{1};

  explicit InProcessExecutor(const InProcessOptions& options)
      : team_(options.num_threads), kv_tokens_(options.kv_tokens) {}
  void Loop();
  void AddTimes(const StepResult& result);

  WorkerTeam team_;
  std::unique_ptr<ComputeDevice> device_;
  const int64_t kv_tokens_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<StepRunner> runner_;  // used by thread_ alone once it runs
  Inbox<ComputeOrder> orders_;
  std::function<void(ExecutorEvent)> on_event_;
  Mutex mutex_;
  StepTimes times_ GUARDED_BY(mutex_);
  WakeFd stop_;
  std::thread thread_;
};

}  // namespace lamina
