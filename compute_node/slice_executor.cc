#include "compute_node/slice_executor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/linear.h"

namespace lamina {

SliceExecutor::SliceExecutor(const SlicedModel& model, const Weights& weights, int max_rows,
                             WorkerTeam& team)
    : model_(model), weights_(weights), team_(team), plan_(PlanBuffers(model)) {
  for (const int64_t width : plan_.widths)
    buffers_.emplace_back(static_cast<size_t>(width * max_rows));
  turn_.Begin(weights.ring());
}

int64_t SliceExecutor::ValueBytes(const SlicedModel& model) {
  const std::vector<int64_t> widths = PlanBuffers(model).widths;
  return std::reduce(widths.begin(), widths.end()) * static_cast<int64_t>(sizeof(float));
}

void SliceExecutor::Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions) {
  turn_.Leave();  // of a step that was given up
  computes_ = !tokens.empty();
  tokens_.assign(tokens.begin(), tokens.end());
  positions_.assign(positions.begin(), positions.end());
  next_op_ = 0;
}

// It stops at all-reduces even if there are no rows, because other ranks wait there.
const Op* SliceExecutor::RunTo(int k, ValueId there) {
  if (computes_) turn_.Enter(k);
  const std::vector<Op>& program = model_.slices[static_cast<size_t>(k)].program;
  while (next_op_ < program.size()) {
    const Op& op = program[next_op_++];
    if (op.kind == OpKind::kAllReduce) return &op;
    if (!tokens_.empty()) Execute(op);
    if (op.output == there) return nullptr;
  }
  // The slice is complete; the next one begins with its first operator.
  if (there < 0) {
    next_op_ = 0;
    turn_.Leave();
  }
  return nullptr;
}

void SliceExecutor::KeepRows(int k, std::span<const int> rows) {
  const Slice& slice = model_.slices[static_cast<size_t>(k)];
  std::vector<ValueId> live = slice.context_in;
  if (slice.attention_out >= 0) live.push_back(slice.attention_out);
  // `rows` ascends, so a row is never overwritten before it has moved.
  for (const ValueId id : live) {
    const int64_t w = width(id);
    float* data = value(id);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] != static_cast<int>(i))
        std::copy_n(data + rows[i] * w, w, data + static_cast<int64_t>(i) * w);
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    tokens_[i] = tokens_[static_cast<size_t>(rows[i])];
    positions_[i] = positions_[static_cast<size_t>(rows[i])];
  }
  tokens_.resize(rows.size());
  positions_.resize(rows.size());
}

void SliceExecutor::Sample(std::span<const SampleWork> work, std::span<SampledToken> tokens) {
  const auto vocab = static_cast<size_t>(width(model_.graph.logits));
  float* const logits = value(model_.graph.logits);
  team_.ParallelFor(std::ssize(work), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      tokens[i] =
          lamina::Sample({logits + work[i].row * vocab, vocab}, *work[i].params, work[i].context);
  });
}

void SliceExecutor::Execute(const Op& op) {
  const int64_t rows = num_rows();
  const auto in = [&](size_t i) { return static_cast<const float*>(value(op.inputs[i])); };
  const auto vector = [&](size_t i) {
    return i < op.weights.size() ? weights_.Vector(op.weights[i]).data() : nullptr;
  };
  switch (op.kind) {
    case OpKind::kTokens:
    case OpKind::kPositions: return;  // they stand in the order
    case OpKind::kEmbedding: {
      const Weights::Table& table = weights_.Rows(op.weights[0]);
      Embedding(table.data, table.dtype, width(op.output), tokens_, value(op.output));
      return;
    }
    case OpKind::kRmsNorm:
      RmsNorm(in(0), vector(0), op.eps, rows, width(op.output), value(op.output));
      return;
    case OpKind::kPositionEmbedding: {
      const Weights::Table& table = weights_.Rows(op.weights[0]);
      table_rows_.clear();
      for (const int32_t position : positions_)
        table_rows_.push_back(static_cast<TokenId>(op.first_row + position));
      Embedding(table.data, table.dtype, width(op.output), table_rows_, value(op.output));
      return;
    }
    case OpKind::kHeadNorm:
      RmsNorm(in(0), vector(0), op.eps, rows * op.num_heads, op.head_dim, value(op.output));
      return;
    case OpKind::kHeadLayerNorm:
      LayerNorm(in(0), {vector(0), nullptr, op.num_heads}, op.eps, rows * op.num_heads, op.head_dim,
                value(op.output));
      return;
    case OpKind::kLayerNorm:
      LayerNorm(in(0), {vector(0), vector(1)}, op.eps, rows, width(op.output), value(op.output));
      return;
    case OpKind::kLinear:
      Linear(weights_.Matrix(op.weights[0]), in(0), rows, vector(1), value(op.output), team_);
      return;
    case OpKind::kRope: {
      const std::vector<float>& frequencies = op.inverse_frequencies;
      const RopeShape shape{op.num_heads, op.head_dim, static_cast<int>(frequencies.size()) * 2,
                            op.interleaved, op.scale};
      Rope(in(0), positions_, frequencies, shape, value(op.output));
      return;
    }
    case OpKind::kSiluMul: SiluMul(in(0), in(1), rows * width(op.output), value(op.output)); return;
    case OpKind::kGeluMul: GeluMul(in(0), in(1), rows * width(op.output), value(op.output)); return;
    case OpKind::kSilu: Silu(in(0), rows * width(op.output), value(op.output)); return;
    case OpKind::kGelu: Gelu(in(0), rows * width(op.output), value(op.output)); return;
    case OpKind::kGeluTanh: GeluTanh(in(0), rows * width(op.output), value(op.output)); return;
    case OpKind::kRelu: Relu(in(0), rows * width(op.output), value(op.output)); return;
    case OpKind::kScale: Scale(in(0), op.scale, rows * width(op.output), value(op.output)); return;
    case OpKind::kSoftCap:
      SoftCap(in(0), op.soft_cap, rows * width(op.output), value(op.output));
      return;
    case OpKind::kExperts:
      experts_.Run(op, weights_, {in(0), in(1), rows, value(op.output)}, team_);
      return;
    case OpKind::kSigmoidGate:
      SigmoidGate(in(0), in(1), rows, width(op.output), value(op.output));
      return;
    case OpKind::kAdd: Add(in(0), in(1), rows * width(op.output), value(op.output)); return;
    case OpKind::kMul: Mul(in(0), in(1), rows * width(op.output), value(op.output)); return;
    case OpKind::kAttention: return;  // never part of a slice
    case OpKind::kAllReduce: return;  // RunTo's caller has a part in it
  }
}

}  // namespace lamina
