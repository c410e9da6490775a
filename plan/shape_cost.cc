#include "plan/shape_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scheduler/round.h"
#include "splitter/tensor_parallel.h"

namespace lamina {
namespace {

constexpr double kHoursPerYear = 8766;  // 24 * 365.25
// Share of the best tokens/s that is as good as the best: more sequences for less than that cost
// only latency.
constexpr double kAboutEqual = 0.995;
// The fourth root of 2: the ratio of two numbers of rows that are tried in turn.
constexpr double kStepOfRows = 1.189207;
// Share of a device's memory for weights where there is no KV cache; the rest is for activations.
constexpr double kWeightUtilization = 0.95;
constexpr int kMaxBatches = 16;  // that a cluster file may have in flight

double Nic(const DeviceSpec& device, const PlanOptions& options, const Scale& scale) {
  return 1e9 * scale.network * NicGbPerS(device, options);
}

AttentionHeads HeadsOf(const ModelConfig& config, int num_ranks) {
  return {config.num_heads / num_ranks, config.num_kv_heads / num_ranks, config.head_dim,
          config.dtype};
}

// Groups neighbours that do the same work. Any of them can stand for the group.
std::vector<RankModel::Group> GroupSlices(const SlicedModel& sliced) {
  std::vector<RankModel::Group> groups;
  LinearWork last;
  for (size_t k = 0; k + 1 < sliced.slices.size(); ++k) {
    const LinearWork work = WorkOf(sliced.slices[k], sliced.graph);
    // The first slice follows no attention, which SliceSeconds may count otherwise.
    if (k < 2 || work != last) groups.push_back({static_cast<int>(k), 0});
    groups.back().count += 1;
    last = work;
  }
  return groups;
}

// How many sequences fit into a cache of so many tokens. Sequences grow and end at different times,
// so that what n of them use has n times the mean and sqrt(n) times the standard deviation of one.
// A scheduler that has no room for the next token must preempt a sequence; with this headroom it
// hardly ever does.
int64_t SequencesThatFit(double tokens, const PlanLoad& load) {
  if (tokens < load.longest) return 0;
  constexpr double kDeviations = 3;
  const double spread = kDeviations * load.context_deviation;
  // n context + 3 sqrt(n) deviation = tokens, solved for sqrt(n).
  const double root =
      (std::sqrt(spread * spread + 4 * load.context * tokens) - spread) / (2 * load.context);
  // The longest request fits, so one sequence does. The factor makes up for the rounding of a root
  // that is a whole number.
  return std::max<int64_t>(1, static_cast<int64_t>(root * root * (1 + 1e-12)));
}

}  // namespace

double HourlyPrice(const DeviceSpec& device, const PlanOptions& options) {
  return options.bought ? device.price_usd / (options.years * kHoursPerYear)
                        : device.price_per_hour;
}

double NicGbPerS(const DeviceSpec& device, const PlanOptions& options) {
  return device.network_gb_per_s > 0 ? device.network_gb_per_s : options.default_nic_gb_per_s;
}

Result<RankModel> RankModel::Create(const ModelConfig& config, int num_ranks) {
  RankModel model;
  model.config = config;
  model.num_ranks = num_ranks;
  // Before tracing: it is the usual reason, and cheap to see.
  if (config.num_heads % num_ranks != 0 || config.num_kv_heads % num_ranks != 0)
    return InvalidArgument(std::to_string(num_ranks) + " ranks do not divide the heads");
  LAMINA_ASSIGN_OR_RETURN(const Graph whole, TraceModel(config));
  LAMINA_ASSIGN_OR_RETURN(Graph graph, GraphOfRank(whole, num_ranks, 0));
  model.weight_bytes = WeightBytes(graph, config.dtype);
  LAMINA_ASSIGN_OR_RETURN(model.sliced, SplitGraph(std::move(graph)));
  model.heads = HeadsOf(config, num_ranks);
  for (int layer = 0; layer < config.num_layers; ++layer) ++model.windows[config.WindowOf(layer)];
  model.groups = GroupSlices(model.sliced);
  for (const Op& op : model.sliced.graph.ops) {
    if (op.kind != OpKind::kAllReduce) continue;
    ++model.num_all_reduces;
    model.all_reduce_elements +=
        static_cast<double>(model.sliced.graph.values[static_cast<size_t>(op.output)].width);
  }
  return model;
}

double StepAttentionSeconds(const DeviceSpec& device, const AttentionHeads& heads,
                            const std::map<AttentionWindow, int>& windows, double rows,
                            double context) {
  double seconds = 0;
  for (const auto& [window, layers] : windows) {
    const double tokens = rows * window.MeanAttended(context);
    AttentionLoad load;
    load.queries = std::llround(std::ceil(rows));
    load.kv_tokens = load.pairs = std::llround(tokens);
    seconds += layers * AttentionSeconds(device, heads, load);
  }
  return seconds;
}

Result<ComputeSide> ComputeSide::Create(const DeviceSpec& device, const RankModel& model,
                                        const PlanOptions& options, const Scale& scale) {
  ComputeSide side(device, model, scale);
  LAMINA_RETURN_IF_ERROR(FitProfile(side.device_, model.config, model.num_ranks));
  side.device_.bf16_tflops *= scale.compute;
  side.device_.fp32_tflops *= scale.compute;
  side.device_.bandwidth_gb_per_s *= scale.weight_bandwidth;
  // Scaling the device's peaks has no effect on times that were measured.
  if (side.device_.profile) side.measured_scale_ = std::max(scale.compute, scale.weight_bandwidth);
  side.nic_ = {options.latency_us * 1e-6 / scale.network, Nic(device, options, scale) * 1e-9};
  // An interconnect is taken to have no latency.
  side.ring_ = device.interconnect_gb_per_s > 0 ? Link{0, device.interconnect_gb_per_s} : side.nic_;
  const auto memory = static_cast<double>(device.memory_bytes),
             weights = static_cast<double>(model.weight_bytes);
  side.free_bytes_ = std::max(0.0, options.memory_utilization * memory - weights);
  if (weights > kWeightUtilization * memory)
    return OutOfSpace(device.name + ": the weights do not fit");
  return side;
}

double ComputeSide::RingSeconds(double rows) const {
  const double ranks = model_->num_ranks,
               bytes = static_cast<double>(ElementSize(model_->config.dtype)) *
                       model_->all_reduce_elements;
  return model_->num_all_reduces * ring_.latency_seconds +
         rows * 2 * (ranks - 1) / ranks * bytes * 1e-9 / ring_.gb_per_s;
}

double ComputeSide::CopySecondsOfRow() const {
  const double bytes =
      static_cast<double>(ElementSize(model_->config.dtype)) * model_->all_reduce_elements;
  return (model_->num_ranks - 1) * bytes * 1e-9 / nic_.gb_per_s;
}

double ComputeSide::CopySeconds(double rows) const {
  return model_->num_all_reduces * nic_.latency_seconds + rows * CopySecondsOfRow();
}

double ComputeSide::LinearSeconds(int64_t rows) {
  const auto known = linear_seconds_.find(rows);
  if (known != linear_seconds_.end()) return known->second;
  const DType dtype = model_->config.dtype;
  const int last = static_cast<int>(model_->sliced.slices.size()) - 1;
  double seconds = SliceSeconds(device_, model_->sliced, last, dtype, rows);
  for (const RankModel::Group& group : model_->groups)
    seconds += group.count * SliceSeconds(device_, model_->sliced, group.slice, dtype, rows);
  seconds /= measured_scale_;
  linear_seconds_.emplace(rows, seconds);
  return seconds;
}

double ComputeSide::PrefillSeconds(const PlanLoad& load) {
  // The linear layers of one step that is full of rows of prompts. The head runs only for a
  // prompt's last token, and is left out.
  double linear = 0;
  for (const RankModel::Group& group : model_->groups)
    linear += group.count * SliceSeconds(device_, model_->sliced, group.slice, model_->config.dtype,
                                         kPrefillRows);
  AttentionLoad attention;
  attention.queries = std::llround(load.input_tokens);
  attention.pairs = std::llround(load.prefill_pairs);
  // Each step of kPrefillRows rows reads the K and V of all tokens before and in it once.
  attention.kv_tokens = std::llround(load.prefill_pairs / kPrefillRows + load.input_tokens);
  return StepsOf(load) * linear +
         model_->config.num_layers * lamina::AttentionSeconds(device_, model_->heads, attention);
}

ShapeCost::ShapeCost(const ClusterShape& shape, ComputeSide& compute, const DeviceSpec* memory,
                     const PlanLoad& load, const PlanOptions& options)
    : shape_(shape),
      compute_(compute),
      attention_(memory != nullptr ? *memory : compute.device()),
      load_(load),
      options_(options) {
  const Scale& scale = compute.scale();
  const ModelConfig& config = compute.model().config;
  const double element = static_cast<double>(ElementSize(config.dtype));
  const AttentionHeads heads = HeadsOf(config, 1);
  kv_bytes_ = static_cast<double>(KvBytesPerToken(heads, config.num_layers));
  row_bytes_ = AttentionRowBytes(heads, element);
  if (config.attention_sinks)  // log-sum-exps, to merge the sinks
    row_bytes_.from_memory += heads.num_heads * static_cast<double>(sizeof(float));
  row_bytes_.to_memory *= config.num_layers;
  row_bytes_.from_memory *= config.num_layers;
  context_bytes_ = element * static_cast<double>(config.hidden_size) * config.num_layers;
  rings_ = shape.homogeneous() || options.ring_all_reduces;
  if (options.prefill) {
    prompt_seconds_ = compute.PrefillSeconds(load) + (rings_ ? compute.RingSeconds(load) : 0);
    prompt_copy_seconds_ = rings_ ? 0 : compute.CopySeconds(load);
  }
  compute_nic_ = Nic(compute.device(), options, scale) * shape.num_ranks;
  memory_nics_ = memory != nullptr ? Nic(*memory, options, scale) * shape.num_memory : 0;
  // The compute side's device has its bandwidth for weights scaled already. On a device that holds
  // both, that must not touch the bandwidth for the KV cache.
  if (memory == nullptr) attention_.bandwidth_gb_per_s /= scale.weight_bandwidth;
  attention_.bandwidth_gb_per_s *= scale.kv_bandwidth;
  // A sequence stays on the memory node where it began, or with ranks on one node of each. Each
  // such set fills up by itself.
  const int pools = memory != nullptr ? std::max(1, shape.num_memory / shape.num_ranks) : 1;
  const double bytes = memory != nullptr
                           ? options.memory_utilization *
                                 static_cast<double>(memory->memory_bytes) * shape.num_memory
                           : compute.free_bytes() * shape.num_ranks;
  const double tokens = scale.kv_capacity * bytes / kv_bytes_;
  max_sequences_ = std::min(pools * SequencesThatFit(tokens / pools, load), options.max_sequences);
}

// What RoundSeconds is made of, in seconds.
struct ShapeCost::Parts {
  double linear = 0, attention = 0, network = 0;  // of a step
  double prompts = 0, prompt_copies = 0;          // of a round, on each replica
  // What a round takes in the busiest direction of the busiest NIC.
  double nics = 0;
  double round = 0;
};

ShapeCost::Parts ShapeCost::PartsOf(const Schedule& schedule) const {
  const RankModel& model = compute_.model();
  const auto rows = static_cast<double>(schedule.rows),
             batches = static_cast<double>(schedule.num_batches);
  const double replicas = shape_.num_replicas;
  Parts parts;
  parts.linear = compute_.LinearSeconds(schedule.rows) + (rings_ ? compute_.RingSeconds(rows) : 0);
  const double prompts = rows * batches / load_.output_tokens;  // prompts that begin in a round
  parts.prompts = prompts * prompt_seconds_ / replicas;
  if (shape_.homogeneous()) {
    parts.attention =
        StepAttentionSeconds(attention_, model.heads, model.windows, rows, load_.context);
    parts.round = parts.linear + parts.attention + parts.prompts;
    return parts;
  }
  const AttentionHeads heads = HeadsOf(model.config, 1);
  // With ranks a memory node has 1 / r of the heads of r times as many rows, which is as much work.
  parts.attention = StepAttentionSeconds(attention_, heads, model.windows, rows / shape_.num_memory,
                                         load_.context);
  const double slower_way = 1 / std::min(compute_nic_, memory_nics_);
  parts.network =
      2 * model.config.num_layers * options_.latency_us * 1e-6 / compute_.scale().network +
      rows * row_bytes_.both() * slower_way;
  // Seconds of each compute node's NIC for copies, in a round.
  double copies = 0;
  if (!rings_) {
    parts.network += compute_.CopySeconds(rows);
    parts.prompt_copies = prompts * prompt_copy_seconds_ / replicas;
    copies = (batches * rows + (options_.prefill ? prompts * load_.input_tokens : 0)) *
             compute_.CopySecondsOfRow() / replicas;
  }
  const double pushed = options_.prefill ? prompts * load_.input_tokens * kv_bytes_ : 0;
  const double out =
      batches * rows * std::max(row_bytes_.to_memory, row_bytes_.from_memory) + pushed;
  const double rotating = schedule.rotates ? batches * rows * context_bytes_ : 0;
  parts.nics = std::max((out + rotating) / (replicas * compute_nic_) + copies, out / memory_nics_);
  const double own_copies = parts.prompt_copies * replicas / batches;
  parts.round = lamina::RoundSeconds(
      {.step = parts.linear + parts.attention + parts.network + parts.prompts + own_copies,
       .slices = parts.linear,
       .prompts = parts.prompts,
       .attention = parts.attention,
       .nics = parts.nics},
      StepsOnNodeOf(0, schedule.num_batches, shape_.num_replicas, schedule.rotates),
      schedule.num_batches);
  return parts;
}

double ShapeCost::RoundSeconds(const Schedule& schedule) const { return PartsOf(schedule).round; }

std::vector<Schedule> ShapeCost::Pipelines() const {
  if (shape_.homogeneous()) return {{1, 0, false}};
  const int replicas = shape_.num_replicas;
  // One batch per replica; or, rotating, one more than there are replicas, so that all have work
  // while one batch is at its attention.
  std::vector<Schedule> pipelines = {{replicas, 0, false}};
  if (replicas > 1) pipelines.push_back({replicas + 1, 0, true});
  for (const int each : {2, 3}) {  // more batches hide more of the network
    if (each * replicas <= kMaxBatches) pipelines.push_back({each * replicas, 0, false});
  }
  return pipelines;
}

bool ShapeCost::Keeps(const Schedule& schedule) const {
  const Parts parts = PartsOf(schedule);
  if (options_.tpot_seconds > 0 && parts.round > options_.tpot_seconds * compute_.scale().slo)
    return false;
  return options_.ttft_seconds <= 0 || prompt_seconds_ + prompt_copy_seconds_ + parts.round <=
                                           options_.ttft_seconds * compute_.scale().slo;
}

// For each pipeline, ascending numbers of rows up to what memory holds or to the last that keeps
// the limits of time, which is among them.
std::vector<Schedule> ShapeCost::Candidates() const {
  std::vector<Schedule> candidates;
  for (Schedule schedule : Pipelines()) {
    const int64_t most = max_sequences_ / schedule.num_batches;
    int64_t kept = 0, next = 1;
    while (kept < most) {
      schedule.rows = std::min(next, most);
      if (!Keeps(schedule)) break;
      candidates.push_back(schedule);
      kept = schedule.rows;
      next = std::max(kept + 1, static_cast<int64_t>(static_cast<double>(kept) * kStepOfRows));
    }
    // Bisection between a number that keeps the limits and one that does not.
    for (int64_t high = std::min(next, most); kept + 1 < high;) {
      schedule.rows = (kept + high) / 2;
      if (Keeps(schedule)) {
        candidates.push_back(schedule);
        kept = schedule.rows;
      } else {
        high = schedule.rows;
      }
    }
  }
  return candidates;
}

Schedule ShapeCost::Best(const std::vector<Schedule>& candidates) const {
  double most = 0;
  for (const Schedule& schedule : candidates) most = std::max(most, TokensPerSecond(schedule));
  return Fewest(candidates, most * kAboutEqual);
}

Schedule ShapeCost::Best() const { return Best(Candidates()); }

Schedule ShapeCost::BestOf(const Schedule& pipeline) const {
  std::vector<Schedule> candidates = Candidates();
  std::erase_if(candidates, [&](const Schedule& schedule) {
    return schedule.num_batches != pipeline.num_batches || schedule.rotates != pipeline.rotates;
  });
  return Best(candidates);
}

Schedule ShapeCost::Fewest(double tokens_per_second) const {
  return Fewest(Candidates(), tokens_per_second);
}

Schedule ShapeCost::Fewest(const std::vector<Schedule>& candidates,
                           double tokens_per_second) const {
  Schedule fewest;
  for (const Schedule& schedule : candidates) {
    if (TokensPerSecond(schedule) < tokens_per_second) continue;
    if (fewest.rows == 0 || schedule.sequences() < fewest.sequences()) fewest = schedule;
  }
  return fewest;
}

Prediction ShapeCost::Describe(const Schedule& schedule) const {
  const Parts parts = PartsOf(schedule);
  Prediction prediction;
  prediction.shape = shape_;
  prediction.schedule = schedule;
  prediction.max_sequences = max_sequences_;
  prediction.admitted_sequences = schedule.sequences();
  prediction.tokens_per_second = prediction.most_tokens_per_second =
      static_cast<double>(schedule.sequences()) / parts.round;
  prediction.tpot_seconds = parts.round;
  prediction.ttft_seconds = prompt_seconds_ + prompt_copy_seconds_ + parts.round;
  prediction.linear_seconds = parts.linear;
  prediction.attention_seconds = parts.attention;
  prediction.network_seconds = parts.network;
  prediction.prefill_seconds = parts.prompts + parts.prompt_copies;
  if (!shape_.homogeneous())
    prediction.needed_gb_per_s = NeededGbPerS(
        static_cast<double>(schedule.rows) * row_bytes_.both() / shape_.num_ranks, parts.linear);
  return prediction;
}

}  // namespace lamina
