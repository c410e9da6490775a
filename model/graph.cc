#include "model/graph.h"

#include <functional>
#include <numeric>

namespace lamina {

double NumElements(const WeightRef& weight) {
  return std::accumulate(weight.shape.begin(), weight.shape.end(), 1.0, std::multiplies<>());
}

double StoredBytes(const WeightRef& weight, DType dtype) {
  const double bits = weight.quantized_bits;
  return NumElements(weight) * (bits > 0 ? bits / 8 : static_cast<double>(ElementSize(dtype)));
}

std::string_view OpName(OpKind kind) {
  switch (kind) {
    case OpKind::kTokens: return "tokens";
    case OpKind::kPositions: return "positions";
    case OpKind::kEmbedding: return "embedding";
    case OpKind::kPositionEmbedding: return "position_embedding";
    case OpKind::kRmsNorm: return "rms_norm";
    case OpKind::kHeadNorm: return "head_norm";
    case OpKind::kHeadLayerNorm: return "head_layer_norm";
    case OpKind::kLayerNorm: return "layer_norm";
    case OpKind::kLinear: return "linear";
    case OpKind::kRope: return "rope";
    case OpKind::kSiluMul: return "silu_mul";
    case OpKind::kGeluMul: return "gelu_mul";
    case OpKind::kSilu: return "silu";
    case OpKind::kGelu: return "gelu";
    case OpKind::kGeluTanh: return "gelu_tanh";
    case OpKind::kRelu: return "relu";
    case OpKind::kScale: return "scale";
    case OpKind::kSoftCap: return "soft_cap";
    case OpKind::kGrowByPosition: return "grow_by_position";
    case OpKind::kExperts: return "experts";
    case OpKind::kSigmoidGate: return "sigmoid_gate";
    case OpKind::kAdd: return "add";
    case OpKind::kMul: return "mul";
    case OpKind::kAttention: return "attention";
    case OpKind::kAllReduce: return "all_reduce";
  }
  return "unknown";
}

const Op& HeadOf(const Graph& graph) {
  const auto producer = [&](ValueId value) -> const Op& {
    return graph.ops[static_cast<size_t>(graph.values[static_cast<size_t>(value)].producer)];
  };
  const Op* op = &producer(graph.logits);
  while (op->kind != OpKind::kLinear && !op->inputs.empty()) op = &producer(op->inputs[0]);
  return *op;
}

}  // namespace lamina
