#include "manager/resolve_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cost/network_cost.h"
#include "model/model_files.h"
#include "splitter/slices.h"
#include "splitter/weight_blocks.h"
#include "wire/wire_format.h"

namespace lamina {
namespace {

// Each memory node holds kv_heads of one rank, which it works for.
Status ResolveRanks(ClusterConfig& config, const ModelConfig& model) {
  const int ranks = config.tensor_parallel_size;
  if (ranks == 1) return OkStatus();
  if (model.num_kv_heads % ranks != 0) {
    return InvalidArgument(
        fmt::format("tensor_parallel_size {} does not divide the model's {} kv_heads: each compute "
                    "node of a stage computes as many of them",
                    ranks, model.num_kv_heads));
  }
  if (config.kv_head_parallel == 1) config.kv_head_parallel = ranks;
  if (config.kv_head_parallel % ranks == 0) return OkStatus();
  return InvalidArgument(
      fmt::format("kv_head_parallel {} must be a multiple of tensor_parallel_size {}: a memory "
                  "node works for the one compute node that computes its "
                  "kv_heads",
                  config.kv_head_parallel, ranks));
}

// No compute node holds the whole model.
Status ResolveStages(ClusterConfig& config, int num_compute) {
  const int stages = config.pipeline_parallel_size, ranks = config.tensor_parallel_size;
  if (stages * ranks != num_compute) {
    return InvalidArgument(
        fmt::format("pipeline_parallel_size {} and tensor_parallel_size {} need {} compute nodes, "
                    "and there are {}",
                    stages, ranks, stages * ranks, num_compute));
  }
  if (config.pipeline == PipelineMode::kRotational) {
    return InvalidArgument(
        "pipeline policy rotational moves batches between compute nodes that hold the whole model; "
        "with pipeline_parallel_size or "
        "tensor_parallel_size each holds its own part: use auto, fixed or none");
  }
  if (config.num_batches == 0)
    config.num_batches = std::min(config.pipeline == PipelineMode::kAuto   ? 2 * stages
                                  : config.pipeline == PipelineMode::kNone ? 1
                                                                           : stages + 1,
                                  kMaxBatches);
  if (config.pipeline == PipelineMode::kNone && config.num_batches != 1) {
    return InvalidArgument(
        fmt::format("num_batches {}: with pipeline_parallel_size or tensor_parallel_size pipeline "
                    "policy none has one; "
                    "auto and fixed have more",
                    config.num_batches));
  }
  return OkStatus();
}

// Also for a config without nodes: that of an engine in one process.
Status ResolvePipeline(ClusterConfig& config) {
  // Each batch in flight would have the weights that lie outside come again, and in an order that
  // is not foreseen.
  const bool has_outside = std::ranges::any_of(config.nodes, [](const NodeConfig& node) {
    return node.offload.any() || node.kv_offload.any();
  });
  if (has_outside && config.pipeline == PipelineMode::kAuto && config.num_batches == 0)
    config.pipeline = PipelineMode::kNone;
  const int num_compute = std::max(
      1, static_cast<int>(std::ranges::count(config.nodes, NodeRole::kCompute, &NodeConfig::role)));
  if (config.shares_model()) return ResolveStages(config, num_compute);
  if (num_compute > kMaxBatches) {
    return InvalidArgument(fmt::format(
        "{} compute nodes hold the whole model each and work on a batch each, and at most {} "
        "batches can be in flight: have "
        "fewer, or let several share the model with tensor_parallel_size or pipeline_parallel_size",
        num_compute, kMaxBatches));
  }
  if (config.num_batches == 0) {
    const int most = config.pipeline == PipelineMode::kAuto   ? 2 * num_compute
                     : config.pipeline == PipelineMode::kNone ? num_compute
                                                              : num_compute + 1;
    config.num_batches = std::min(most, kMaxBatches);
  }
  if (config.pipeline == PipelineMode::kNone && config.num_batches != num_compute) {
    return InvalidArgument(
        fmt::format("num_batches {}: pipeline policy none has one for each of the {} compute "
                    "nodes; fixed and rotational "
                    "have more",
                    config.num_batches, num_compute));
  }
  if (config.num_batches < num_compute)
    return InvalidArgument(
        fmt::format("num_batches {} leaves some of the {} compute nodes without work",
                    config.num_batches, num_compute));
  return OkStatus();
}

// Where every compute node has the whole model, and all of them are on one bus.
Status FindOffloadBus(ClusterConfig& config, const ModelConfig& model) {
  if (!config.coordinate_buses || config.shares_model()) return OkStatus();
  std::set<std::string> buses;
  int num_compute = 0;
  double portion = 1;
  for (const NodeConfig& node : config.nodes) {
    if (node.role != NodeRole::kCompute) continue;
    ++num_compute;
    buses.insert(node.offload.bus);
    portion = node.offload.portion;
  }
  // Each of them has to run the steps of one batch.
  if (num_compute < 2 || num_compute != config.num_batches) return OkStatus();
  if (buses.size() != 1 || buses.begin()->empty()) return OkStatus();
  LAMINA_ASSIGN_OR_RETURN(Graph graph, TraceModel(model));
  LAMINA_ASSIGN_OR_RETURN(const SlicedModel sliced, SplitGraph(std::move(graph)));
  const int num_slices = static_cast<int>(sliced.slices.size());
  const std::vector<int64_t> blocks = BlockBytes(sliced, {0, num_slices}, model.dtype, portion);
  OffloadBus bus;
  bus.bytes_per_s = 1e9 * config.buses.at(*buses.begin());
  for (const int interval : config.step_profile->intervals()) {
    const std::vector<bool> outside = OutsideByInterval(num_slices, interval);
    double& bytes = bus.bytes_outside[interval];
    for (size_t i = 0; i < blocks.size(); ++i)
      bytes += outside[i] ? static_cast<double>(blocks[i]) : 0;
  }
  config.offload_bus = std::move(bus);
  return OkStatus();
}

// All nodes change their intervals alike, by one profile.
Status LoadStepProfile(ClusterConfig& config, const ModelConfig& model) {
  std::string record;
  for (const NodeConfig& node : config.daemons()) {
    if (node.offload_record.empty()) continue;
    if (!record.empty() && node.offload_record != record) {
      return InvalidArgument(
          fmt::format("node '{}' has the record {}, and another node {}: steps are of the whole "
                      "cluster, so that "
                      "there is one record of them",
                      node.name, node.offload_record, record));
    }
    record = node.offload_record;
  }
  if (record.empty()) return OkStatus();
  LAMINA_ASSIGN_OR_RETURN(StepProfile profile, StepProfile::Load(record));
  config.step_profile = std::make_shared<const StepProfile>(std::move(profile));
  return FindOffloadBus(config, model);
}

// Nodes that share the kv_heads of a token would have to change alike. REQUIRES: ResolveRanks has
// set kv_head_parallel.
Status CheckElastic(const ClusterConfig& config) {
  if (config.kv_head_parallel == 1) return OkStatus();
  for (const NodeConfig& node : config.nodes) {
    if (node.role != NodeRole::kMemory || !node.offload.is_elastic()) continue;
    return Unimplemented(fmt::format(
        "memory node '{}': an expansion of 'auto' is not there yet for nodes that share "
        "the kv_heads of a token, as with tensor_parallel_size or kv_head_parallel "
        "above 1; name a number",
        node.name));
  }
  return OkStatus();
}

}  // namespace

Status ResolveConfig(ClusterConfig& config, const ModelConfig& model) {
  if (config.max_model_len == 0) config.max_model_len = model.max_positions;
  if (config.max_model_len > model.max_positions) {
    return InvalidArgument(fmt::format("max_model_len {} is more than the model's {} positions",
                                       config.max_model_len, model.max_positions));
  }
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    return InvalidArgument(fmt::format("max_num_batched_tokens {} must be at least max_num_seqs {}",
                                       config.max_num_batched_tokens, config.max_num_seqs));
  }
  if (config.kv_head_parallel > model.num_kv_heads) {
    return InvalidArgument(fmt::format("kv_head_parallel {} is more than the model's {} kv_heads",
                                       config.kv_head_parallel, model.num_kv_heads));
  }
  LAMINA_RETURN_IF_ERROR(ResolvePipeline(config));
  LAMINA_RETURN_IF_ERROR(ResolveRanks(config, model));
  LAMINA_RETURN_IF_ERROR(CheckElastic(config));
  LAMINA_RETURN_IF_ERROR(LoadStepProfile(config, model));
  if (!config.kv_dtype) config.kv_dtype = model.dtype;
  if (!config.wire_dtype) config.wire_dtype = config.has_modelled() ? model.dtype : DType::kF32;
  if (config.overlap == Switch::kAuto)
    config.overlap = config.models_network() ? Switch::kOn : Switch::kOff;
  if (config.served_name.empty()) config.served_name = ModelName(config.model_path);
  return OkStatus();
}

Result<View> ViewOf(const ClusterConfig& config, const ModelConfig& model) {
  TopologyOptions options;
  for (const NodeConfig& node : config.nodes) {
    options.nodes.push_back({config.IdOf(options.nodes.size()), node.role});
  }
  options.num_stages = config.pipeline_parallel_size;
  options.num_ranks = config.tensor_parallel_size;
  options.kv_head_parallel = config.kv_head_parallel;
  options.num_kv_heads = model.num_kv_heads;
  return View::Of(options);
}

int64_t KvBytesPerToken(const ModelConfig& model, DTypeSetting kv_dtype) {
  return KvBytesPerToken(
      {model.num_heads, model.num_kv_heads, model.head_dim, kv_dtype.value_or(model.dtype)},
      model.num_layers);
}

}  // namespace lamina
