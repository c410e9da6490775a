#include "bench/in_process_executor.h"

#include <poll.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/mutex.h"
#include "compute_node/compute_session.h"
#include "compute_node/make_compute_device.h"

namespace lamina {

InProcessOptions InProcessOptions::Of(const ClusterConfig& config, const ModelConfig& model) {
  InProcessOptions options;
  options.weights.model_dir = config.model_path;
  options.weights.load_format = config.load_format;
  options.limits.max_num_seqs = config.max_num_seqs;
  options.limits.max_num_batched_tokens = config.max_num_batched_tokens;
  options.limits.max_model_len = config.max_model_len;
  options.kv_dtype = config.kv_dtype.value_or(model.dtype);
  return options;
}

Result<std::unique_ptr<InProcessExecutor>> InProcessExecutor::Create(
    const InProcessOptions& options) {
  std::unique_ptr<InProcessExecutor> executor(new InProcessExecutor(options));
  LAMINA_ASSIGN_OR_RETURN(executor->device_, MakeComputeDevice(options.device, executor->team_));
  LAMINA_ASSIGN_OR_RETURN(executor->model_, executor->device_->Load(options.weights));
  ConfigureCompute request;
  request.attention =
      MakeAttentionSpec(executor->model_->config, options.kv_dtype, /*wire_dtype=*/DType::kF32);
  request.limits = options.limits;
  LAMINA_ASSIGN_OR_RETURN(
      std::unique_ptr<AttentionStrategy> attention,
      MakeLocalAttention(request, *executor->model_, options.kv_tokens, *executor->device_));
  LAMINA_ASSIGN_OR_RETURN(
      executor->runner_, StepRunner::Create(*executor->model_, options.limits, std::move(attention),
                                            *executor->device_));
  return executor;
}

InProcessExecutor::~InProcessExecutor() {
  stop_.Signal();
  if (thread_.joinable()) thread_.join();
}

void InProcessExecutor::Start(std::function<void(ExecutorEvent)> on_event) {
  on_event_ = std::move(on_event);
  thread_ = std::thread([this] { Loop(); });
}

void InProcessExecutor::Submit(const StepPlan& plan, std::vector<NewSequence> added) {
  orders_.Push(MakeComputeOrder(/*epoch=*/0, plan, std::move(added), /*local=*/true));
}

void InProcessExecutor::Loop() {
  while (true) {
    std::array<pollfd, 2> polls = {pollfd{orders_.fd(), POLLIN, 0}, pollfd{stop_.fd(), POLLIN, 0}};
    poll(polls.data(), polls.size(), -1);
    if (polls[1].revents != 0) return;
    while (std::optional<ComputeOrder> order = orders_.TryPop()) {
      std::vector<StepResult> results;
      // Orders come from this process, so one that is refused is a bug.
      const Status begun = runner_->Begin(*std::move(order));
      LAMINA_CHECK(begun.ok(), "the order of a step was refused: {}", begun.ToString());
      while (results.empty()) runner_->Advance(results);
      AddTimes(results.front());
      ExecutorEvent event;
      event.result = std::move(results.front());
      on_event_(std::move(event));
    }
  }
}

void InProcessExecutor::AddTimes(const StepResult& result) {
  MutexLock lock(mutex_);
  for (const NodeTimes& told : result.times) times_.Add(told.times);
}

std::vector<NodeStatus> InProcessExecutor::nodes() {
  MutexLock lock(mutex_);
  NodeStatus self;
  self.id = kSelf;
  self.name = "local";
  self.role = NodeRole::kCompute;
  self.state = NodeState::kReady;
  self.capacity_tokens = kv_tokens_;
  self.times = times_;
  return {self};
}

}  // namespace lamina
