#include "compute_node/slice_executor.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/linear.h"

namespace lamina {

SliceExecutor::SliceExecutor(const SlicedModel& model, const Weights& weights, int max_rows, WorkerTeam& team)
    : model_(model), weights_(weights), team_(team) {
  PlanBuffers(max_rows);
}

// Linear scan over the chain of slices and attentions: a buffer is free again after the last operator that reads its value.
void SliceExecutor::PlanBuffers(int max_rows) {
  std::vector<const Op*> chain;
  for (const Slice& slice : model_.slices) {
    for (const Op& op : slice.program) chain.push_back(&op);
    if (slice.attention >= 0) chain.push_back(&model_.attentions[static_cast<size_t>(slice.attention)]);
  }
  const size_t num_values = model_.graph.values.size();
  std::vector<size_t> last_use(num_values, 0);
  for (size_t i = 0; i < chain.size(); ++i) {
    for (const ValueId input : chain[i]->inputs) last_use[static_cast<size_t>(input)] = i;
  }
  last_use[static_cast<size_t>(model_.graph.logits)] = chain.size();

  buffer_of_.assign(num_values, -1);
  std::multimap<int64_t, int> free_buffers;  // width -> buffer
  std::vector<int64_t> widths;
  for (size_t i = 0; i < chain.size(); ++i) {
    const Op& op = *chain[i];
    if (op.kind == OpKind::kTokens || op.kind == OpKind::kPositions) continue;
    const int64_t op_width = width(op.output);
    if (const auto reusable = free_buffers.find(op_width); reusable != free_buffers.end()) {
      buffer_of_[static_cast<size_t>(op.output)] = reusable->second;
      free_buffers.erase(reusable);
    } else {
      buffer_of_[static_cast<size_t>(op.output)] = static_cast<int>(widths.size());
      widths.push_back(op_width);
    }
    std::vector<ValueId> inputs = op.inputs;
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    for (const ValueId input : inputs) {
      const int buffer = buffer_of_[static_cast<size_t>(input)];
      if (buffer >= 0 && last_use[static_cast<size_t>(input)] == i) free_buffers.emplace(width(input), buffer);
    }
  }
  for (const int64_t w : widths) buffers_.emplace_back(static_cast<size_t>(w * max_rows));
}

void SliceExecutor::Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions) {
  tokens_.assign(tokens.begin(), tokens.end());
  positions_.assign(positions.begin(), positions.end());
  next_op_ = 0;
}

// Without rows too it stops at all-reduces: other ranks wait there.
const Op* SliceExecutor::RunTo(int k, ValueId there) {
  const std::vector<Op>& program = model_.slices[static_cast<size_t>(k)].program;
  while (next_op_ < program.size()) {
    const Op& op = program[next_op_++];
    if (op.kind == OpKind::kAllReduce) return &op;
    if (!tokens_.empty()) Execute(op);
    if (op.output == there) return nullptr;
  }
  if (there < 0) next_op_ = 0;
  return nullptr;
}

void SliceExecutor::KeepRows(int k, std::span<const int> rows) {
  const Slice& slice = model_.slices[static_cast<size_t>(k)];
  std::vector<ValueId> live = slice.context_in;
  if (slice.attention_out >= 0) live.push_back(slice.attention_out);
  for (const ValueId id : live) {
    const int64_t w = width(id);
    float* data = value(id);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] != static_cast<int>(i)) std::copy_n(data + rows[i] * w, w, data + static_cast<int64_t>(i) * w);
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    tokens_[i] = tokens_[static_cast<size_t>(rows[i])];
    positions_[i] = positions_[static_cast<size_t>(rows[i])];
  }
  tokens_.resize(rows.size());
  positions_.resize(rows.size());
}

SampledToken SliceExecutor::Sample(size_t row, const SamplingParams& params, const SampleContext& context) {
  const auto vocab = static_cast<size_t>(width(model_.graph.logits));
  return lamina::Sample({value(model_.graph.logits) + row * vocab, vocab}, params, context);
}

void SliceExecutor::Execute(const Op& op) {
  const int64_t rows = num_rows();
  const auto in = [&](size_t i) { return static_cast<const float*>(value(op.inputs[i])); };
  const auto vector = [&](size_t i) { return i < op.weights.size() ? weights_.Vector(op.weights[i]).data() : nullptr; };
  switch (op.kind) {
    case OpKind::kTokens:
    case OpKind::kPositions: return;  // they stand in the order
    case OpKind::kEmbedding: {
      const Weights::Table& table = weights_.Rows(op.weights[0]);
      Embedding(table.data, table.dtype, width(op.output), tokens_, value(op.output));
      return;
    }
    case OpKind::kRmsNorm: RmsNorm(in(0), vector(0), op.eps, rows, width(op.output), value(op.output)); return;
    case OpKind::kPositionEmbedding: {
      const Weights::Table& table = weights_.Rows(op.weights[0]);
      table_rows_.clear();
      for (const int32_t position : positions_) table_rows_.push_back(static_cast<TokenId>(op.first_row + position));
      Embedding(table.data, table.dtype, width(op.output), table_rows_, value(op.output));
      return;
    }
    case OpKind::kHeadNorm: RmsNorm(in(0), vector(0), op.eps, rows * op.num_heads, op.head_dim, value(op.output)); return;
    case OpKind::kLayerNorm: LayerNorm(in(0), {vector(0), vector(1)}, op.eps, rows, width(op.output), value(op.output)); return;
    case OpKind::kLinear: Linear(weights_.Matrix(op.weights[0]), in(0), rows, vector(1), value(op.output), team_); return;
    case OpKind::kRope: {
      const std::vector<float>& frequencies = op.inverse_frequencies;
      const RopeShape shape{op.num_heads, op.head_dim, static_cast<int>(frequencies.size()) * 2, op.interleaved};
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
    case OpKind::kSoftCap: SoftCap(in(0), op.soft_cap, rows * width(op.output), value(op.output)); return;
    case OpKind::kExperts: experts_.Run(op, weights_, in(0), in(1), rows, value(op.output), team_); return;
    case OpKind::kAdd: Add(in(0), in(1), rows * width(op.output), value(op.output)); return;
    case OpKind::kMul: Mul(in(0), in(1), rows * width(op.output), value(op.output)); return;
    case OpKind::kAttention: return;  // never part of a slice
    case OpKind::kAllReduce: return;  // RunTo's caller has a part in it
  }
}

}  // namespace lamina
