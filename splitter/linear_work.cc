#include "splitter/linear_work.h"

#include <cstddef>

namespace lamina {
namespace {

void AddMatrix(const WeightRef& weight, LinearWork& work) {
  const double elements = NumElements(weight);
  work.weights += elements;
  if (weight.quantized_bits <= 0) return;
  work.quantized += elements;
  work.quantized_bytes += elements * weight.quantized_bits / 8;
}

}  // namespace

LinearWork WorkOf(const Slice& slice, const Graph& graph) {
  LinearWork work;
  const auto width = [&](ValueId id) {
    return static_cast<double>(graph.values[static_cast<size_t>(id)].width);
  };
  for (const Op& op : slice.program) {
    // An embedding reads one row of its table and writes it; the rest of the table stays unread.
    if (op.kind == OpKind::kEmbedding || op.kind == OpKind::kPositionEmbedding)
      work.row_elements += 2 * width(op.output);
    if (op.kind == OpKind::kAllReduce) work.row_elements += (op.num_ranks + 1) * width(op.output);
    if (op.kind == OpKind::kExperts) {
      double weights = 0, rows = 0;
      for (const WeightRef& weight : op.weights) {
        if (weight.shape.size() < 2)
          continue;  // biases are too small to count, as those of linears
        AddMatrix(weight, work);
        weights += NumElements(weight);
        rows += static_cast<double>(weight.shape[0] + weight.shape[1]);
      }
      // The weights of all experts are read, but a row computes only with those that it is routed
      // to.
      const double routed = static_cast<double>(op.experts_per_token) / op.num_experts;
      work.unrouted += weights * (1 - routed);
      work.row_elements += rows * routed;
    }
    if (op.kind != OpKind::kLinear) continue;
    AddMatrix(op.weights[0], work);
    work.row_elements += width(op.inputs[0]) + width(op.output);
  }
  return work;
}

}  // namespace lamina
