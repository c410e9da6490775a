#include "manager/engine_options.h"

#include <algorithm>

namespace lamina {

EngineOptions EngineOptions::Of(const ClusterConfig& config, const ModelConfig& model) {
  EngineOptions options;
  options.scheduler.max_num_seqs = config.max_num_seqs;
  options.scheduler.num_batches = config.num_batches;
  options.num_compute_nodes = std::max(
      1, static_cast<int>(std::ranges::count(config.nodes, NodeRole::kCompute, &NodeConfig::role)));
  options.pipeline_parallel_size = config.pipeline_parallel_size;
  options.tensor_parallel_size = config.tensor_parallel_size;
  options.chooses_pipeline = config.pipeline == PipelineMode::kAuto;
  const int fewest = config.shares_model()
                         ? std::min(config.pipeline_parallel_size, config.num_batches)
                         : options.num_compute_nodes;
  options.pipeline = {options.chooses_pipeline ? fewest : config.num_batches,
                      config.pipeline == PipelineMode::kRotational};
  options.scheduler.max_num_batched_tokens = config.max_num_batched_tokens;
  options.scheduler.max_model_len = config.max_model_len;
  options.scheduler.max_queued = config.max_num_queued_reqs;
  options.scheduler.prefix_caching = config.prefix_caching;
  // Decode rows are rounded on the wire, rows of a prefill are not. (With overlap a row's output is
  // put together from its step's rows and those before; starting again puts it together otherwise,
  // however the rows are computed.)
  options.scheduler.replays_as_computed = config.wire_dtype.value_or(DType::kF32) != DType::kF32;
  options.eos_tokens = model.eos_tokens;
  options.vocab_size = model.vocab_size;
  options.state_size = model.state_size();
  options.step_timeout = config.step_timeout;
  options.give_up_after = config.start_timeout;
  options.max_rebuilds = config.max_rebuilds;
  options.spread_tokens = config.spread_tokens;
  options.queue = config.queue;
  options.drops_hopeless = config.on_hopeless == HopelessMode::kDrop;
  options.slo = config.slo;
  options.step_profile = config.step_profile;
  options.offload_bus = config.offload_bus;
  return options;
}

StepCycleOptions EngineOptions::cycle() const {
  return {pipeline, chooses_pipeline, scheduler.num_batches,
          shares_model() ? pipeline_parallel_size : num_compute_nodes, shares_model()};
}

std::unique_ptr<QueuePolicy> EngineOptions::MakeQueue() const {
  switch (queue) {
    case QueueMode::kFifo: break;
    case QueueMode::kPriority: return MakePriorityQueue();
    case QueueMode::kDeadline: return MakeDeadlineQueue();
  }
  return MakeFifoQueue();
}

std::unique_ptr<PlacementPolicy> EngineOptions::MakePlacement() const {
  return spread_tokens > 0 ? MakeSpreadPlacement(spread_tokens) : MakeLeastLoadedPlacement();
}

}  // namespace lamina
