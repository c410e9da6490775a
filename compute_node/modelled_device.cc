#include "compute_node/modelled_device.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "splitter/cost_model.h"

namespace lamina {
namespace {

class ModelledSlices final : public SliceRunner {
 public:
  ModelledSlices(const DeviceSpec& device, const LoadedModel& model, int max_rows, DeviceTimeline& timeline)
      : device_(device), model_(model), timeline_(timeline) {
    const Graph& graph = model.sliced.graph;
    std::vector<int64_t> widths;
    for (const Slice& slice : model.sliced.slices) {
      std::vector<ValueId> ids = {slice.q, slice.k, slice.v, slice.attention_out};
      ids.insert(ids.end(), slice.context_out.begin(), slice.context_out.end());
      widths.resize(std::max(widths.size(), ids.size()));
      for (size_t role = 0; role < ids.size(); ++role) {
        if (ids[role] < 0) continue;
        role_of_[ids[role]] = role;
        widths[role] = std::max(widths[role], graph.values[static_cast<size_t>(ids[role])].width);
      }
    }
    for (const int64_t width : widths) values_.emplace_back(static_cast<size_t>(width * max_rows));
  }

  void Begin(std::span<const TokenId> tokens, std::span<const int32_t>) override { num_rows_ = static_cast<int64_t>(tokens.size()); }

  void Run(int k) override {
    if (rest_done_ == TimePoint{}) rest_done_ = timeline_.Book(Clock::now(), SliceTime(k));
    SleepUntil(std::exchange(rest_done_, TimePoint{}));
  }

  // The device goes on by itself while its host sends q.
  void RunToQueries(int k) override {
    const Clock::duration rest = FromSeconds(SecondsBehindQueries(device_, model_.sliced, k, model_.config.dtype, num_rows_));
    rest_done_ = timeline_.Book(Clock::now(), SliceTime(k));
    SleepUntil(rest_done_ - rest);
  }

  void KeepRows(int, std::span<const int> rows) override { num_rows_ = static_cast<int64_t>(rows.size()); }

  float* value(ValueId id) override { return values_[role_of_.at(id)].data(); }

  SampledToken Sample(size_t, const SamplingParams& params, const SampleContext& context) override {
    const auto is_in = [](const std::vector<TokenId>& tokens, TokenId token) { return std::ranges::find(tokens, token) != tokens.end(); };
    const bool bans = std::ssize(context.output) < params.min_tokens;
    SampledToken sampled;
    sampled.rank = 1;
    const ModelConfig& config = model_.config;
    while (sampled.token < config.vocab_size - 1 &&
           (sampled.token == config.bos_token || is_in(config.eos_tokens, sampled.token) || (bans && is_in(params.banned, sampled.token))))
      ++sampled.token;
    return sampled;
  }

 private:
  Clock::duration SliceTime(int k) const { return FromSeconds(SliceSeconds(device_, model_.sliced, k, model_.config.dtype, num_rows_)); }

  const DeviceSpec& device_;
  const LoadedModel& model_;
  DeviceTimeline& timeline_;
  std::unordered_map<ValueId, size_t> role_of_;  // q, k, v, attention output, then the context: one slice's are live at a time
  std::vector<std::vector<float>> values_;
  int64_t num_rows_ = 0;
  TimePoint rest_done_{};  // of a slice whose q is there, else none
};

class ModelledKv final : public LocalKv {
 public:
  ModelledKv(const DeviceSpec& device, const AttentionShape& shape, DType dtype, DeviceTimeline& timeline)
      : device_(device), heads_{shape.num_heads, shape.num_kv_heads, shape.head_dim, dtype}, timeline_(timeline) {}

  Status Append(SequenceId, int64_t, std::span<const TokenSlot>, StepId) override { return OkStatus(); }
  void Release(SequenceId) override {}

  void Attend(int, StepId, std::span<const AttentionWork> rows, const float*, const float*, const float*, float*,
              Failures& failures) override {
    AttentionLoad load;
    for (size_t i = 0; i < rows.size();) {
      size_t end = i + 1;  // rows [i, end) are one sequence's, in order of position
      while (end < rows.size() && rows[end].sequence == rows[i].sequence) ++end;
      if (!failures.contains(rows[i].sequence)) load.AddPrefill(rows[i].position, static_cast<int64_t>(end - i));
      i = end;
    }
    timeline_.Run(FromSeconds(AttentionSeconds(device_, heads_, load)));
  }

 private:
  const DeviceSpec& device_;
  const AttentionHeads heads_;
  DeviceTimeline& timeline_;
};

}  // namespace

Result<std::unique_ptr<LoadedModel>> ModelledDevice::Load(const WeightOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> model, LoadedModel::Describe(options.model_dir, options.share));
  LAMINA_RETURN_IF_ERROR(CheckProfile(spec_, model->config));
  model->weight_bytes = WeightBytes(model->part(), model->config.dtype);
  if (model->weight_bytes > spec_.memory_bytes) {
    return OutOfSpace(options.model_dir + " has " + FormatGigabytes(model->weight_bytes) + " of weights, more than the " +
                      FormatGigabytes(spec_.memory_bytes) + " of device " + spec_.name);
  }
  return model;
}

std::unique_ptr<SliceRunner> ModelledDevice::MakeSlices(const LoadedModel& model, int max_rows) {
  return std::make_unique<ModelledSlices>(spec_, model, max_rows, timeline_);
}

Result<std::unique_ptr<LocalKv>> ModelledDevice::MakeKv(const AttentionShape& shape, const KvShape& kv, int64_t) {
  return std::unique_ptr<LocalKv>(std::make_unique<ModelledKv>(spec_, shape, kv.dtype, timeline_));
}

}  // namespace lamina
