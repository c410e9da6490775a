#include "cost/cost_model.h"

#include <algorithm>
#include <set>
#include <string>

namespace lamina {
namespace {

double RooflineSeconds(const DeviceSpec& device, DType dtype, double operations, double mfu,
                       double bytes) {
  const double peak = device.peak_flops_per_s(static_cast<int>(ElementSize(dtype)));
  return std::max(operations / (peak * mfu), bytes / device.reached_bytes_per_s());
}

LayerProfile::Shape ShapeOf(const ModelConfig& model) {
  return {model.num_heads, model.num_kv_heads, static_cast<int>(model.hidden_size),
          static_cast<int>(model.intermediate_size)};
}

}  // namespace

double LinearSeconds(const DeviceSpec& device, const LinearWork& work, DType dtype, int64_t rows) {
  if (rows == 0) return 0;
  const auto batch = static_cast<double>(rows);
  const double plain = work.weights - work.quantized + batch * work.row_elements;
  const double bytes = static_cast<double>(ElementSize(dtype)) * plain + work.quantized_bytes;
  return RooflineSeconds(device, dtype, 2 * (work.weights - work.unrouted) * batch,
                         device.Mfu(batch), bytes);
}

double SliceSeconds(const DeviceSpec& device, const SlicedModel& model, int k, DType dtype,
                    int64_t rows) {
  const Slice& slice = model.slices[static_cast<size_t>(k)];
  if (!device.profile) return LinearSeconds(device, WorkOf(slice, model.graph), dtype, rows);
  if (rows == 0) return 0;
  double seconds = 0;
  // A slice is what follows one attention and what precedes the next. The first slice begins with
  // no attention, and the last one ends with the head in place of one.
  if (slice.attention_out >= 0)
    seconds += device.profile->AfterAttentionSeconds(static_cast<double>(rows));
  if (slice.attention >= 0)
    return seconds + device.profile->BeforeAttentionSeconds(static_cast<double>(rows));
  Slice head;
  head.program.push_back(HeadOf(model.graph));
  return seconds + LinearSeconds(device, WorkOf(head, model.graph), dtype, rows);
}

double SecondsBehindQueries(const DeviceSpec& device, const SlicedModel& model, int k, DType dtype,
                            int64_t rows) {
  const Slice& slice = model.slices[static_cast<size_t>(k)];
  // The program computes q first and nothing before it that q does not need (splitter/slices.h), so
  // everything behind the operator that gives q follows the queries.
  Slice behind;
  const auto q = std::find_if(slice.program.begin(), slice.program.end(),
                              [&](const Op& op) { return op.output == slice.q; });
  if (q != slice.program.end()) behind.program.assign(q + 1, slice.program.end());
  const double all = LinearSeconds(device, WorkOf(slice, model.graph), dtype, rows);
  if (all <= 0) return 0;
  const double share = LinearSeconds(device, WorkOf(behind, model.graph), dtype, rows) / all;
  return share * SliceSeconds(device, model, k, dtype, rows);
}

double StepSeconds(const DeviceSpec& device, const SlicedModel& model, DType dtype, int64_t rows,
                   int64_t sampled_rows) {
  const int last = static_cast<int>(model.slices.size()) - 1;
  double seconds = 0;
  for (int k = 0; k <= last; ++k)
    seconds += SliceSeconds(device, model, k, dtype, k == last ? sampled_rows : rows);
  return seconds;
}

Status FitProfile(DeviceSpec& device, const ModelConfig& model, int workers) {
  if (!device.profile) return OkStatus();
  if (model.layer_bits > 0) {
    return InvalidArgument("device " + device.name +
                           ": its profile is of layers whose weights are plain numbers, and the "
                           "model's are quantized; use a device without one");
  }
  const LayerProfile::Shape ours = ShapeOf(model);
  std::vector<const LayerProfile*> measured = {&*device.profile};
  for (const LayerProfile& profile : device.other_profiles) measured.push_back(&profile);
  for (const LayerProfile* profile : measured) {
    if (profile->shape() != ours) continue;
    Result<LayerProfile> of_workers = profile->workers() == workers ? Result<LayerProfile>(*profile)
                                                                    : profile->WithWorkers(workers);
    if (!of_workers.ok()) break;  // measured with other numbers of workers only: predicted below
    device.profile = std::move(*of_workers);
    return OkStatus();
  }
  Result<LayerProfile> predicted = LayerProfile::Predict(
      measured, ours, workers, device.peak_flops_per_s(), device.bandwidth_gb_per_s * 1e9);
  if (!predicted.ok()) return predicted.status().WithContext("device " + device.name);
  device.profile = std::move(*predicted);
  return OkStatus();
}

Status CheckRanks(const DeviceSpec& device, int num_ranks) {
  if (!device.profile || num_ranks <= 1) return OkStatus();
  const std::string file = device.profile_paths.empty() ? "" : device.profile_paths.front() + " ";
  return InvalidArgument("device " + device.name + ": its profile " + file +
                         "is of whole layers, and with tensor_parallel_size each node runs a part "
                         "of each; use a device without one");
}

void AttentionLoad::AddDecode(int64_t context) {
  queries += 1;
  kv_tokens += context;
  pairs += context;
}

namespace {

// Of the rows at positions [0, end) of one sequence.
int64_t PairsBefore(int64_t end, const AttentionWindow& window) {
  // The rows that have every token before them in their window; those of a chunk do within it.
  const int64_t all = window.any() ? std::min(end, window.size) : end;
  const int64_t of_all = all * (all + 1) / 2;
  if (all == end) return of_all;
  if (!window.chunked) return of_all + (end - all) * window.size;
  return end / window.size * of_all + PairsBefore(end % window.size, window);
}

}  // namespace

void AttentionLoad::AddPrefill(int64_t first, int64_t count, const AttentionWindow& window) {
  queries += count;
  pairs += PairsBefore(first + count, window) - PairsBefore(first, window);
  // The union of the windows begins with the window of the first row.
  kv_tokens += first + count - window.First(first);
}

double AttentionOperations(const AttentionHeads& heads, const AttentionLoad& load) {
  // Two operations for each element of q k^T, and two for each of the weighted sum of v.
  return 4.0 * heads.num_heads * heads.head_dim * static_cast<double>(load.pairs);
}

double RowsPerToken(const AttentionHeads& heads, const AttentionLoad& load) {
  return static_cast<double>(load.pairs) / static_cast<double>(load.kv_tokens) * heads.num_heads /
         heads.num_kv_heads;
}

double AttentionSeconds(const DeviceSpec& device, const AttentionHeads& heads,
                        const AttentionLoad& load) {
  if (load.kv_tokens == 0) return 0;
  const double q_width = static_cast<double>(heads.num_heads) * heads.head_dim;
  const auto kv_bytes =
      2 * static_cast<double>(KvRowBytes(heads.dtype, heads.num_kv_heads, heads.head_dim));
  const auto queries = static_cast<double>(load.queries),
             tokens = static_cast<double>(load.kv_tokens);
  const DType computed = IsForKvOnly(heads.dtype) ? DType::kBF16 : heads.dtype;
  // K and V are read for all tokens and written for the new ones; q is read, the output written.
  const double bytes = kv_bytes * (tokens + queries) +
                       static_cast<double>(ElementSize(computed)) * 2 * q_width * queries;
  return RooflineSeconds(device, computed, AttentionOperations(heads, load),
                         device.AttentionMfu(RowsPerToken(heads, load)), bytes);
}

int64_t WeightBytes(const Graph& graph, DType dtype) {
  std::set<std::string> seen;
  double bytes = 0;
  for (const Op& op : graph.ops) {
    for (const WeightRef& weight : op.weights) {
      if (seen.insert(weight.id()).second) bytes += StoredBytes(weight, dtype);
    }
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace lamina
