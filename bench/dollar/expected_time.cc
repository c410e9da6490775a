#include "bench/dollar/expected_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/kernels/machine_limits.h"
#include "cost/cost_model.h"
#include "cost/node_device.h"
#include "manager/resolve_config.h"
#include "model/model_config.h"
#include "splitter/slices.h"

namespace lamina {
namespace {

// Starting daemons, connecting and ending them. In one process there is little of that.
constexpr double kStartSeconds = 1.0;
constexpr double kStartOneProcessSeconds = 0.2;
constexpr double kLoadBytesPerSecond = 1e9;  // of weights
constexpr int kPrefillChunk = 512;           // tokens of a step
constexpr int kWarmUpSteps = 8;              // as in point_run.cc

}  // namespace

struct ExpectedTime::Model {
  ModelConfig config;
  SlicedModel sliced;
  int64_t weight_bytes = 0;
};

ExpectedTime::ExpectedTime(const Sweep& sweep) : sweep_(sweep) {}
ExpectedTime::~ExpectedTime() = default;

Result<const ExpectedTime::Model*> ExpectedTime::ModelAt(const std::string& path) {
  std::unique_ptr<const Model>& known = models_[path];
  if (known == nullptr) {
    auto model = std::make_unique<Model>();
    LAMINA_ASSIGN_OR_RETURN(model->config, ModelConfig::Load(path));
    LAMINA_ASSIGN_OR_RETURN(Graph graph, TraceModel(model->config));
    model->weight_bytes = WeightBytes(graph, model->config.dtype);
    LAMINA_ASSIGN_OR_RETURN(model->sliced, SplitGraph(std::move(graph)));
    known = std::move(model);
  }
  return known.get();
}

Result<DeviceSpec> ExpectedTime::DeviceOf(const NodeConfig& node, const ClusterConfig& config,
                                          const Model& model) {
  LAMINA_ASSIGN_OR_RETURN(std::optional<DeviceSpec> device,
                          FindModelledDevice(node.device, config.device_catalog));
  if (device) {
    if (node.role == NodeRole::kCompute)
      LAMINA_RETURN_IF_ERROR(FitProfile(*device, model.config, device->tensor_parallel));
    return *device;
  }
  if (node.device != "cpu")
    return Unimplemented("nothing is known of device " + node.device + " of node '" + node.name +
                         "'");
  if (!machine_) {
    LAMINA_RETURN_IF_ERROR(CheckLimitsOf(ActiveCpuIsa()));
    WorkerTeam team(0);
    MachineLimits limits(team);
    limits.Measure();
    machine_ = limits.device();
  }
  return *machine_;
}

Result<double> ExpectedTime::Estimate(const SweepPoint& point) {
  const ClusterConfig& config = sweep_.shapes[point.shape].config;
  const SweepLoad& load = sweep_.load;
  LAMINA_ASSIGN_OR_RETURN(const Model* const model, ModelAt(config.model_path));
  std::optional<DeviceSpec> compute, memory;
  int num_memory = 0;
  for (const NodeConfig& node : config.nodes) {
    std::optional<DeviceSpec>& device = node.role == NodeRole::kCompute ? compute : memory;
    num_memory += node.role == NodeRole::kMemory;
    if (device) continue;
    LAMINA_ASSIGN_OR_RETURN(device, DeviceOf(node, config, *model));
  }
  const DeviceSpec& attends = memory ? *memory : *compute;
  const ModelConfig& shape = model->config;
  const AttentionHeads heads{shape.num_heads, shape.num_kv_heads, shape.head_dim,
                             config.kv_dtype.value_or(shape.dtype)};
  AttentionLoad decode;
  // The rows of the fullest memory node.
  const int rows = (point.batch + std::max(1, num_memory) - 1) / std::max(1, num_memory);
  for (int i = 0; i < rows; ++i) decode.AddDecode(point.context + load.output_tokens / 2);
  const double step = StepSeconds(*compute, model->sliced, shape.dtype, point.batch, point.batch) +
                      shape.num_layers * AttentionSeconds(attends, heads, decode);
  double prefill = 0;
  if (!load.prefill_left_out) {
    const double chunks =
        std::ceil(static_cast<double>(point.batch) * point.context / kPrefillChunk);
    AttentionLoad prompt;
    prompt.AddPrefill(0, point.context);
    const int chunk = std::min(kPrefillChunk, point.batch * point.context);
    prefill = chunks * StepSeconds(*compute, model->sliced, shape.dtype, chunk, 1) +
              point.batch * shape.num_layers * AttentionSeconds(*compute, heads, prompt);
  }
  const double warm_up = prefill + std::min(kWarmUpSteps, load.output_tokens) * step;
  const double run = load.waves * (prefill + load.output_tokens * step);
  const double bytes = config.has_modelled() ? 0 : static_cast<double>(model->weight_bytes);
  const bool one_process = sweep_.shapes[point.shape].kind == ShapeKind::kOneProcess;
  return (one_process ? kStartOneProcessSeconds : kStartSeconds) + bytes / kLoadBytesPerSecond +
         warm_up + sweep_.repeats * run;
}

std::optional<double> ExpectedTime::Seconds(const SweepPoint& point) {
  if (sweep_.shapes[point.shape].kind == ShapeKind::kEndpoint) return std::nullopt;
  const Result<double> estimate = Estimate(point);
  return estimate.ok() ? std::optional(*estimate) : std::nullopt;
}

std::string DurationText(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace lamina
