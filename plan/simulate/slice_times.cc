#include "plan/simulate/slice_times.h"

#include <algorithm>

#include "base/device_timeline.h"

namespace lamina {
namespace {

// Whether the operators of both slices are of the same kinds and shapes.
bool TakeAsLong(const Slice& a, const Slice& b, const Graph& graph) {
  const auto width = [&](ValueId id) { return graph.values[static_cast<size_t>(id)].width; };
  const auto same = [&](const Op& x, const Op& y) {
    if (x.kind != y.kind || x.inputs.size() != y.inputs.size() ||
        x.weights.size() != y.weights.size())
      return false;
    for (size_t i = 0; i < x.inputs.size(); ++i) {
      if (width(x.inputs[i]) != width(y.inputs[i])) return false;
    }
    for (size_t i = 0; i < x.weights.size(); ++i) {
      if (x.weights[i].shape != y.weights[i].shape) return false;
    }
    return width(x.output) == width(y.output);
  };
  return (a.attention < 0) == (b.attention < 0) && (a.attention_out < 0) == (b.attention_out < 0) &&
         std::equal(a.program.begin(), a.program.end(), b.program.begin(), b.program.end(), same);
}

}  // namespace

SliceTimes::SliceTimes(const ClusterModel& cluster, const DeviceSpec& device)
    : cluster_(cluster), device_(device) {
  const std::vector<Slice>& slices = cluster.sliced.slices;
  for (size_t k = 0; k < slices.size(); ++k) {
    size_t first = 0;
    while (!TakeAsLong(slices[first], slices[k], cluster.sliced.graph)) ++first;
    alike_.push_back(static_cast<int>(first));
  }
}

const std::vector<SlicePart>& SliceTimes::Of(int slice, int64_t rows) {
  std::vector<std::vector<SlicePart>>& of_rows = by_rows_[rows];
  if (of_rows.empty()) of_rows.resize(alike_.size());
  const int first = alike_[static_cast<size_t>(slice)];
  std::vector<SlicePart>& parts = of_rows[static_cast<size_t>(first)];
  if (parts.empty()) parts = Compute(first, rows);
  return parts;
}

double SliceTimes::StepSeconds(int64_t rows, int64_t sampled_rows) {
  return lamina::StepSeconds(device_, cluster_.sliced, cluster_.model.dtype, rows, sampled_rows);
}

// The adding up of partial sums counts with the part after the all-reduce, as on modelled devices
// (compute_node/modelled_device.cc).
std::vector<SlicePart> SliceTimes::Compute(int slice, int64_t rows) const {
  const Slice& whole = cluster_.sliced.slices[static_cast<size_t>(slice)];
  const DType dtype = cluster_.model.dtype;
  std::vector<SlicePart> parts;
  size_t begin = 0;
  while (parts.empty() || begin < whole.program.size()) {
    const auto first = whole.program.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto sum = std::find_if(first, whole.program.end(),
                                  [](const Op& op) { return op.kind == OpKind::kAllReduce; });
    SlicePart& part = parts.emplace_back();
    part.has_q =
        whole.q >= 0 && std::any_of(first, sum, [&](const Op& op) { return op.output == whole.q; });
    // A slice in one piece may have a measured time; a part of one has the roofline's.
    if (begin == 0 && sum == whole.program.end()) {
      part.time = FromSeconds(SliceSeconds(device_, cluster_.sliced, slice, dtype, rows));
    } else {
      Slice run;
      run.program.assign(begin == 0 ? first : first - 1, sum);
      part.time =
          FromSeconds(LinearSeconds(device_, WorkOf(run, cluster_.sliced.graph), dtype, rows));
    }
    if (part.has_q)
      part.behind_q =
          FromSeconds(SecondsBehindQueries(device_, cluster_.sliced, slice, dtype, rows));
    if (sum == whole.program.end()) break;
    part.sum_elements = cluster_.sliced.graph.values[static_cast<size_t>(sum->output)].width;
    begin = static_cast<size_t>(sum - whole.program.begin()) + 1;
  }
  return parts;
}

}  // namespace lamina
