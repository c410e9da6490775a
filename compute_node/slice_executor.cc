#include "compute_node/slice_executor.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/host_memory.h"
#include "kernels/elementwise.h"
#include "kernels/linear.h"

namespace lamina {

SliceExecutor::SliceExecutor(const SlicedModel& model, const Weights& weights, int max_rows,
                             int logit_rows, WorkerTeam& team)
    : model_(model),
      weights_(weights),
      team_(team),
      logit_rows_(logit_rows),
      plan_(PlanBuffers(model)),
      head_(HeadOpsOf(model)) {
  for (size_t i = 0; i < plan_.widths.size(); ++i) {
    const int64_t rows = plan_.only_head[i] ? logit_rows : max_rows;
    buffers_.emplace_back(static_cast<size_t>(plan_.widths[i] * rows));
  }
  turn_.Begin(weights.ring());
}

// The ring may give the place of the last slice's weights away when the slice has run.
int SliceExecutor::LogitRows(const SlicedModel& model, const Weights& weights, int max_rows) {
  if (weights.ring() != nullptr || !HeadOpsOf(model)) return max_rows;
  const int64_t row_bytes = model.graph.values[static_cast<size_t>(model.graph.logits)].width *
                            static_cast<int64_t>(sizeof(float));
  return static_cast<int>(std::clamp<int64_t>(kLogitBytes / row_bytes, 1, std::max(max_rows, 1)));
}

int64_t SliceExecutor::ValueBytes(const SlicedModel& model, int max_rows, int logit_rows) {
  const BufferPlan plan = PlanBuffers(model);
  int64_t bytes = 0;
  for (size_t i = 0; i < plan.widths.size(); ++i) {
    const int64_t row_bytes = plan.widths[i] * static_cast<int64_t>(sizeof(float));
    const int64_t more = SaturatedProduct(row_bytes, plan.only_head[i] ? logit_rows : max_rows);
    bytes += std::min(more, INT64_MAX - bytes);
  }
  return bytes;
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
  const bool is_last = static_cast<size_t>(k) + 1 == model_.slices.size();
  const size_t end = is_last && leaves_logits() ? head_->first : program.size();
  while (next_op_ < end) {
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

void SliceExecutor::RunHead(int64_t first, int64_t count) {
  const std::vector<Op>& program = model_.slices.back().program;
  for (const Op& op : std::span(program).subspan(head_->first)) {
    const float* x = value(op.inputs[0]);
    float* const y = value(op.output);
    const int64_t elements = count * width(op.output);
    if (op.kind == OpKind::kLinear) {
      x += first * width(op.inputs[0]);
      const float* const bias =
          op.weights.size() > 1 ? weights_.Vector(op.weights[1]).data() : nullptr;
      Linear(weights_.Matrix(op.weights[0]), x, count, bias, y, team_);
    } else if (op.kind == OpKind::kScale) {
      Scale(x, op.scale, elements, y);
    } else {
      SoftCap(x, op.soft_cap, elements, y);
    }
  }
}

template <typename Work, typename Take>
void SliceExecutor::ForEachRow(std::span<const Work> work, Take take) {
  const auto vocab = static_cast<size_t>(width(model_.graph.logits));
  const bool in_pieces = leaves_logits();
  const auto piece = static_cast<size_t>(in_pieces ? logit_rows_ : num_rows());
  const auto rows = static_cast<size_t>(num_rows());
  std::vector<size_t> there;  // of the work
  for (size_t first = 0; first < rows; first += piece) {
    there.clear();
    for (size_t i = 0; i < work.size(); ++i) {
      if (work[i].row >= first && work[i].row < first + piece) there.push_back(i);
    }
    if (there.empty()) continue;
    if (in_pieces)
      RunHead(static_cast<int64_t>(first), static_cast<int64_t>(std::min(piece, rows - first)));
    float* const logits = value(model_.graph.logits);
    team_.ParallelFor(std::ssize(there), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const size_t one = there[i];
        take(one, std::span(logits + (work[one].row - first) * vocab, vocab));
      }
    });
  }
}

void SliceExecutor::Score(std::span<const ScoreWork> work, std::span<TokenScore> scores) {
  ForEachRow(work, [&](size_t i, std::span<float> logits) {
    scores[i] = lamina::Score(logits, work[i].token, work[i].num_top);
  });
}

void SliceExecutor::Sample(std::span<const SampleWork> work, std::span<SampledToken> tokens) {
  ForEachRow(work, [&](size_t i, std::span<float> logits) {
    tokens[i] = lamina::Sample(logits, *work[i].params, work[i].context);
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
    case OpKind::kGrowByPosition:
      GrowByPosition(in(0), positions_, {op.scale, op.period}, width(op.output), value(op.output));
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
