#include "compute_node/modelled_device.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/host_memory.h"
#include "base/units.h"
#include "compute_node/slice_turn.h"
#include "cost/cost_model.h"
#include "kernels/modelled_kv_cache.h"
#include "node/elastic_ring.h"
#include "splitter/weight_blocks.h"
#include "tiers/modelled_ring.h"

namespace lamina {
namespace {

// The weights of slices that take turns in the device's memory, as far as that takes time.
class ModelledWeights final : public DeviceWeights {
 public:
  ModelledWeights(int first_slice, const OffloadOptions& offload, std::vector<int64_t> block_bytes,
                  std::unique_ptr<BlockRing> ring)
      : first_slice_(first_slice),
        offload_(offload),
        block_bytes_(std::move(block_bytes)),
        ring_(std::move(ring)) {}

  void SetInterval(int interval) override {
    if (MayChangeTo(interval, offload_, block_bytes_))
      ring_->SetOutside(OutsideByInterval(static_cast<int>(block_bytes_.size()), interval));
  }

  void AddVisitor() { ring_->AddVisitor(); }
  void RemoveVisitor() { ring_->RemoveVisitor(); }
  // Takes the time that somebody waits for the slice's weights.
  void Enter(int slice) {
    const Result<std::byte*> entered = ring_->Enter(slice - first_slice_);
    LAMINA_CHECK(entered.ok(), "slice {}: {}", slice, entered.status().message());
  }
  void Leave(int slice) { ring_->Leave(slice - first_slice_); }

 private:
  const int first_slice_;
  const OffloadOptions offload_;
  const std::vector<int64_t> block_bytes_;
  const std::unique_ptr<BlockRing> ring_;
};

// Takes the time that the slices would take on the device. Values that others read or write have
// memory, but nothing computes them.
class ModelledSlices final : public SliceRunner {
 public:
  ModelledSlices(const DeviceSpec& device, const LoadedModel& model, DeviceTimeline& timeline)
      : device_(device), model_(model), timeline_(timeline) {
    const Graph& graph = model.sliced.graph;
    for (const Slice& slice : model.sliced.slices) {
      std::vector<ValueId> ids = {slice.q, slice.k, slice.v, slice.attention_out};
      ids.insert(ids.end(), slice.context_out.begin(), slice.context_out.end());
      for (const Op& op : slice.program) {
        if (op.kind == OpKind::kAllReduce) ids.insert(ids.end(), {op.inputs[0], op.output});
      }
      widths_.resize(std::max(widths_.size(), ids.size()));
      for (size_t role = 0; role < ids.size(); ++role) {
        if (ids[role] < 0) continue;
        role_of_[ids[role]] = role;
        widths_[role] = std::max(widths_[role], graph.values[static_cast<size_t>(ids[role])].width);
      }
    }
  }

  // Takes the host's memory for steps of up to `max_rows` rows. kOutOfSpace if it is not there.
  Status Allocate(int max_rows) {
    const int64_t row_bytes =
        std::reduce(widths_.begin(), widths_.end()) * static_cast<int64_t>(sizeof(float));
    LAMINA_RETURN_IF_ERROR(
        CheckHostMemory(SaturatedProduct(row_bytes, max_rows),
                        "the values of a step of " + std::to_string(max_rows) + " tokens"));
    for (const int64_t width : widths_) values_.emplace_back(static_cast<size_t>(width * max_rows));
    return OkStatus();
  }

  // The weights of slices take turns in the device's memory.
  void Use(ModelledWeights& ring) { turn_.Begin(&ring); }

  void Begin(std::span<const TokenId> tokens, std::span<const int32_t>) override {
    turn_.Leave();  // of a step that was given up
    num_rows_ = static_cast<int64_t>(tokens.size());
    computes_ = !tokens.empty();
    next_op_ = 0;
  }

  const Op* Run(int k) override {
    if (computes_) turn_.Enter(k);
    const std::vector<Op>& program = ProgramOf(k);
    const size_t end = EndOfPart(k);
    if (rest_done_ == TimePoint{}) rest_done_ = timeline_.Book(Clock::now(), PartTime(k, end));
    SleepUntil(std::exchange(rest_done_, TimePoint{}));
    next_op_ = end < program.size() ? end + 1 : 0;
    if (next_op_ == 0) turn_.Leave();
    return end < program.size() ? &program[end] : nullptr;
  }

  // Books the whole part at once and returns when q is there. The device goes on with the rest
  // while its host sends q, and the next Run waits for that.
  const Op* RunToQueries(int k) override {
    if (computes_) turn_.Enter(k);
    const ValueId q = model_.sliced.slices[static_cast<size_t>(k)].q;
    const size_t end = EndOfPart(k);
    const auto part = std::span(ProgramOf(k)).subspan(next_op_, end - next_op_);
    // An all-reduce comes before q: run to that.
    if (std::ranges::find(part, q, &Op::output) == part.end()) return Run(k);
    const Clock::duration rest = FromSeconds(
        SecondsBehindQueries(device_, model_.sliced, k, model_.config.dtype, num_rows_));
    rest_done_ = timeline_.Book(Clock::now(), PartTime(k, end));
    SleepUntil(rest_done_ - rest);
    return nullptr;
  }

  void KeepRows(int, std::span<const int> rows) override {
    num_rows_ = static_cast<int64_t>(rows.size());
  }

  // Null for a value that no other node reads: Pack looks at none.
  float* value(ValueId id) override {
    const auto found = role_of_.find(id);
    return found == role_of_.end() ? nullptr : values_[found->second].data();
  }

  // As likely as can be, like the tokens that it chooses.
  void Score(std::span<const ScoreWork> work, std::span<TokenScore> scores) override {
    for (size_t i = 0; i < work.size(); ++i) scores[i] = {work[i].token, 0, 1};
  }

  void Sample(std::span<const SampleWork> work, std::span<SampledToken> tokens) override {
    for (size_t i = 0; i < work.size(); ++i)
      tokens[i] = LowestToken(*work[i].params, work[i].context);
  }

 private:
  // The lowest token that does not end the sequence and may be chosen, so that sequences end only
  // at their maximal length, or where a constrained text has to end.
  SampledToken LowestToken(const SamplingParams& params, const SampleContext& context) const {
    const auto is_in = [](const std::vector<TokenId>& tokens, TokenId token) {
      return std::ranges::find(tokens, token) != tokens.end();
    };
    const bool bans = std::ssize(context.output) < params.min_tokens;
    SampledToken sampled;
    sampled.rank = 1;
    const ModelConfig& config = model_.config;
    if (const TokenMask* const mask = context.next.tokens)
      return {LowestOf(*mask, params, context)};
    while (sampled.token < config.vocab_size - 1 &&
           (sampled.token == config.bos_token || is_in(config.eos_tokens, sampled.token) ||
            (bans && is_in(params.banned, sampled.token))))
      ++sampled.token;
    return sampled;
  }

  static TokenId LowestOf(const TokenMask& mask, const SamplingParams& params,
                          const SampleContext& context) {
    for (TokenId token = 0; mask.count > 0; ++token) {
      if (HasToken(mask.bits, token)) return token;
    }
    return context.next.may_end && !params.banned.empty() ? params.banned.front() : TokenId{-1};
  }

  const std::vector<Op>& ProgramOf(int k) const {
    return model_.sliced.slices[static_cast<size_t>(k)].program;
  }

  // The index of the next all-reduce in what is left of slice `k`; the program's size if there is
  // none.
  size_t EndOfPart(int k) const {
    const std::vector<Op>& program = ProgramOf(k);
    const auto reduces =
        std::find_if(program.begin() + static_cast<std::ptrdiff_t>(next_op_), program.end(),
                     [](const Op& op) { return op.kind == OpKind::kAllReduce; });
    return static_cast<size_t>(reduces - program.begin());
  }

  // The time of the operators from the next one to `end`. Adding up the all-reduce before them
  // counts with them.
  Clock::duration PartTime(int k, size_t end) const {
    const std::vector<Op>& program = ProgramOf(k);
    if (next_op_ == 0 && end == program.size())
      return FromSeconds(SliceSeconds(device_, model_.sliced, k, model_.config.dtype, num_rows_));
    Slice part;
    part.program.assign(
        program.begin() + static_cast<std::ptrdiff_t>(next_op_ == 0 ? 0 : next_op_ - 1),
        program.begin() + static_cast<std::ptrdiff_t>(end));
    return FromSeconds(
        LinearSeconds(device_, WorkOf(part, model_.sliced.graph), model_.config.dtype, num_rows_));
  }

  const DeviceSpec& device_;
  const LoadedModel& model_;
  DeviceTimeline& timeline_;
  // One slice's q, k, v, attention output, context and all-reduces are live at a time, so values
  // with the same role in different slices share memory.
  std::unordered_map<ValueId, size_t> role_of_;
  std::vector<int64_t> widths_;  // of a row, by role
  std::vector<std::vector<float>> values_;
  int64_t num_rows_ = 0;
  size_t next_op_ = 0;  // in the slice that runs
  SliceTurn<ModelledWeights> turn_;
  bool computes_ = false;  // the step had rows when it began, so that it needs weights
  // When the rest of a slice that was run to q is done; TimePoint{}: there is no such slice.
  TimePoint rest_done_{};
};

// The layers of a KV cache, where not all of them are in the device's memory at a time.
struct KvLayers {
  std::unique_ptr<Ring> ring;        // null: all are
  ElasticLayers* elastic = nullptr;  // the ring, if the number of places changes
};

Result<KvLayers> MakeKvLayers(const DeviceSpec& device, const KvShape& kv,
                              const OffloadOptions& offload, int64_t capacity_tokens) {
  KvLayers layers;
  if (!offload.any()) return layers;
  LAMINA_ASSIGN_OR_RETURN(const double rate, device.HostLinkBytesPerS(offload.gb_per_s));
  const double back = device.HostLinkBackBytesPerS(offload.gb_per_s);
  const int64_t of_token = kv.bytes_per_token() / kv.num_layers, bytes = of_token * capacity_tokens;
  if (offload.is_elastic()) {
    LAMINA_ASSIGN_OR_RETURN(const ElasticKv elastic,
                            ElasticKvOf(offload, kv.num_layers, capacity_tokens));
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<FifoRing> ring,
                            MakeModelledFifoRing(kv.num_layers, 0, kv.num_layers, rate, back,
                                                 nullptr, LayerBytes(elastic, of_token)));
    auto changing = std::make_unique<ElasticRing>(elastic, std::move(ring));
    layers.elastic = changing.get();
    layers.ring = std::move(changing);
  } else if (offload.expansion > 0) {
    LAMINA_ASSIGN_OR_RETURN(const int slots, SlotsForExpansion(kv.num_layers, offload.expansion));
    LAMINA_ASSIGN_OR_RETURN(layers.ring,
                            MakeModelledFifoRing(kv.num_layers, bytes, slots, rate, back));
  } else {
    std::vector<int64_t> all(static_cast<size_t>(kv.num_layers), bytes);
    LAMINA_ASSIGN_OR_RETURN(std::vector<bool> outside, FirstOutside(offload, all));
    LAMINA_ASSIGN_OR_RETURN(
        layers.ring, MakeModelledRing(std::move(all), std::move(outside), offload.buffers, rate,
                                      std::make_shared<OwnLink>(), nullptr, back));
  }
  return layers;
}

// Takes the time of attention on the device.
class ModelledKv final : public LocalKv {
 public:
  ModelledKv(const DeviceSpec& device, const AttentionHeads& heads,
             const std::vector<AttentionWindow>& windows, int64_t capacity_tokens, KvLayers layers,
             DeviceTimeline& timeline)
      : device_(device),
        heads_(heads),
        windows_(windows),
        layers_(std::move(layers)),
        cache_(capacity_tokens, layers_.elastic),
        timeline_(timeline) {}

  KvCache& cache() override { return cache_; }

  void Attend(const AttentionValues& values, StepId, std::span<const AttentionWork> rows,
              Failures& failures) override {
    const AttentionWindow window =
        windows_.empty() ? AttentionWindow{} : windows_[static_cast<size_t>(values.layer)];
    AttentionLoad load;
    for (size_t i = 0; i < rows.size();) {
      size_t end = i + 1;  // rows [i, end) are one sequence's, in order of position
      while (end < rows.size() && rows[end].sequence == rows[i].sequence) ++end;
      if (!failures.contains(rows[i].sequence))
        load.AddPrefill(rows[i].position, static_cast<int64_t>(end - i), window);
      i = end;
    }
    if (layers_.ring != nullptr) {
      const Status entered = layers_.ring->Enter(values.layer).status();
      LAMINA_CHECK(entered.ok(), "layer {}: {}", values.layer, entered.message());
    }
    timeline_.Run(FromSeconds(AttentionSeconds(device_, heads_, load)));
    if (layers_.ring != nullptr) layers_.ring->Leave(values.layer, /*changed=*/true);
  }

 private:
  const DeviceSpec& device_;
  const AttentionHeads heads_;
  const std::vector<AttentionWindow> windows_;
  const KvLayers layers_;
  ModelledKvCache cache_;
  DeviceTimeline& timeline_;
};

// Weights that nobody has, at the rate of the device's load_gb_per_s.
class ModelledLoading final : public LoadingModel {
 public:
  ModelledLoading(std::unique_ptr<LoadedModel> model, double gb_per_s)
      : model_(std::move(model)), bytes_(model_->weight_bytes), start_(Clock::now()) {
    if (gb_per_s <= 0) return;
    duration_ = FromSeconds(static_cast<double>(bytes_) / (1e9 * gb_per_s));
  }

  Result<std::unique_ptr<LoadedModel>> Continue() override {
    if (Clock::now() < start_ + duration_) return std::unique_ptr<LoadedModel>();
    return std::move(model_);
  }
  WeightsProgress progress() const override {
    const double part =
        duration_ == Clock::duration::zero()
            ? 1
            : SecondsSince(start_) / std::chrono::duration<double>(duration_).count();
    return {std::min(bytes_, static_cast<int64_t>(static_cast<double>(bytes_) * part)), bytes_};
  }
  // Managers hear of progress as while real weights are loaded.
  TimePoint wake_at() const override {
    constexpr auto kLook = milliseconds(100);
    return std::min(start_ + duration_, Clock::now() + kLook);
  }

 private:
  std::unique_ptr<LoadedModel> model_;
  const int64_t bytes_;
  const TimePoint start_;
  Clock::duration duration_{};
};

}  // namespace

std::byte* ModelledDevice::Pack(std::span<const PackedParts> packed, std::byte* message) {
  for (const PackedParts& each : packed) message += each.num_bytes();
  return message;
}

Result<std::unique_ptr<LoadingModel>> ModelledDevice::StartLoad(const WeightOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> model, Model(options));
  return std::unique_ptr<LoadingModel>(
      std::make_unique<ModelledLoading>(std::move(model), spec_.load_gb_per_s));
}

Result<std::unique_ptr<LoadedModel>> ModelledDevice::Model(const WeightOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> model,
                          LoadedModel::Describe(options.model_dir, options.share));
  LAMINA_RETURN_IF_ERROR(FitProfile(spec_, model->config, spec_.tensor_parallel));
  LAMINA_RETURN_IF_ERROR(CheckRanks(spec_, options.share.num_ranks));
  model->weight_bytes = WeightBytes(model->part(), model->config.dtype);
  // Nobody has their numbers, but messages have log-sum-exps where there are some.
  for (const Op& op : model->sliced.attentions) {
    if (!op.weights.empty()) model->sinks.emplace_back(static_cast<size_t>(op.num_heads));
  }
  int64_t in_device = model->weight_bytes;
  if (offload_.any()) {
    LAMINA_ASSIGN_OR_RETURN(const double rate, spec_.HostLinkBytesPerS(offload_.gb_per_s));
    const std::vector<int64_t> bytes =
        BlockBytes(model->sliced, model->slices(), model->config.dtype, offload_.portion);
    LAMINA_ASSIGN_OR_RETURN(const int interval, FirstInterval(offload_, bytes));
    LAMINA_ASSIGN_OR_RETURN(std::vector<bool> outside, FirstOutside(offload_, bytes));
    std::shared_ptr<CopyLink> link = std::make_shared<OwnLink>();
    if (!offload_.bus.empty()) {
      LAMINA_ASSIGN_OR_RETURN(link, SharedBus::Open(offload_.bus));
    }
    LAMINA_ASSIGN_OR_RETURN(
        std::unique_ptr<BlockRing> ring,
        MakeModelledRing(bytes, std::move(outside), offload_.buffers, rate, std::move(link)));
    in_device += ring->memory_bytes() - std::reduce(bytes.begin(), bytes.end());
    if (offload_.is_auto) model->largest_interval = interval;
    model->device_weights =
        std::make_unique<ModelledWeights>(model->slices().first, offload_, bytes, std::move(ring));
  }
  if (in_device > spec_.memory_bytes) {
    return OutOfSpace(options.model_dir + " has " + FormatGigabytes(in_device) +
                      (offload_.any() ? " of weights that do not lie outside" : " of weights") +
                      ", more than the " + FormatGigabytes(spec_.memory_bytes) + " of device " +
                      spec_.name);
  }
  return model;
}

Result<std::unique_ptr<SliceRunner>> ModelledDevice::MakeSlices(const LoadedModel& model,
                                                                int max_rows) {
  auto slices = std::make_unique<ModelledSlices>(spec_, model, timeline_);
  if (auto* const ring = dynamic_cast<ModelledWeights*>(model.device_weights.get()))
    slices->Use(*ring);
  LAMINA_RETURN_IF_ERROR(slices->Allocate(max_rows));
  return std::unique_ptr<SliceRunner>(std::move(slices));
}

Result<std::unique_ptr<LocalKv>> ModelledDevice::MakeKv(const AttentionShape& shape,
                                                        const KvShape& kv,
                                                        const AttentionLayers& layers,
                                                        int64_t capacity_tokens) {
  const AttentionHeads heads{shape.num_heads, shape.num_kv_heads, shape.head_dim, kv.dtype};
  LAMINA_ASSIGN_OR_RETURN(KvLayers places, MakeKvLayers(spec_, kv, kv_offload_, capacity_tokens));
  return std::unique_ptr<LocalKv>(std::make_unique<ModelledKv>(
      spec_, heads, layers.windows, capacity_tokens, std::move(places), timeline_));
}

}  // namespace lamina
