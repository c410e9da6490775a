#include "compute_node/cuda/cuda_slices.h"

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/units.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/rows.h"

namespace lamina {
namespace {

static_assert(std::is_same_v<TokenId, int32_t>, "token ids are uploaded as they stand");
constexpr size_t kFloatsPerLine = 64;  // buffers begin at multiples of 256 bytes

size_t AlignFloats(size_t n) { return (n + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine; }

// The values that a slice reads from what ran before it.
std::vector<ValueId> LiveBefore(const Slice& slice) {
  std::vector<ValueId> live = slice.context_in;
  if (slice.attention_out >= 0) live.push_back(slice.attention_out);
  return live;
}

// Whether the host has a part in the operator, so that it cannot be recorded in a CUDA graph.
bool NeedsTheHost(const Op& op) {
  return op.kind == OpKind::kExperts || op.kind == OpKind::kPositionEmbedding;
}

}  // namespace

Result<std::unique_ptr<CudaSlices>> CudaSlices::Create(const SlicedModel& model,
                                                       const CudaWeights& weights, int max_rows,
                                                       CudaEngine& engine, WorkerTeam& team) {
  std::unique_ptr<CudaSlices> slices(new CudaSlices(model, weights, max_rows, engine, team));
  engine.staged().Enter();
  cuda::LinearLimits limits{max_rows, weights.most_places(), 0};
  for (const Slice& slice : model.slices) {
    for (const Op& op : slice.program) {
      if (op.kind != OpKind::kLinear && op.kind != OpKind::kExperts) continue;
      for (const WeightRef& weight : op.weights) {
        if (weight.shape.size() != 2) continue;
        limits.max_out_features = std::max(limits.max_out_features, weight.shape[0]);
        limits.max_in_features = std::max(limits.max_in_features, weight.shape[1]);
      }
    }
  }
  LAMINA_RETURN_IF_ERROR(engine.Reserve(limits));
  LAMINA_RETURN_IF_ERROR(slices->Allocate());
  LAMINA_RETURN_IF_ERROR(engine.staged().Synchronize());
  return slices;
}

Status CudaSlices::Allocate() {
  const auto rows = static_cast<size_t>(max_rows_);
  size_t floats = 0;
  std::vector<size_t> begins;
  for (const int64_t buffer_width : plan_.widths) {
    begins.push_back(floats);
    floats += AlignFloats(static_cast<size_t>(buffer_width) * rows);
  }
  const size_t spare = floats;
  int64_t widest = 0;
  for (const ValueId id : LiveBefore(model_.slices.back())) widest = std::max(widest, width(id));
  floats += AlignFloats(static_cast<size_t>(widest) * rows);
  Result<cuda::DeviceBuffer> memory = cuda::DeviceBuffer::Create(floats * sizeof(float));
  if (!memory.ok()) {
    return memory.status().WithContext(
        "the values of a step of " + std::to_string(max_rows_) +
        " rows (max_num_batched_tokens) need " +
        FormatGigabytes(static_cast<int64_t>(floats * sizeof(float))));
  }
  memory_ = std::move(*memory);
  for (const size_t begin : begins) buffers_.push_back(memory_.as<float>() + begin);
  spare_ = memory_.as<float>() + spare;
  LAMINA_ASSIGN_OR_RETURN(rows_, cuda::DeviceBuffer::Create(4 * rows * sizeof(int32_t)));
  // Graphs run on more rows than a step has. The tokens and positions of those rows must be valid,
  // too; 0 is.
  cuda::FillOnDevice(rows_.data(), 0, rows_.size_bytes(), engine_.stream());
  device_tokens_ = rows_.as<int32_t>();
  device_positions_ = device_tokens_ + rows;
  device_scratch_ = device_positions_ + rows;
  device_kept_ = device_scratch_ + rows;
  LAMINA_ASSIGN_OR_RETURN(sampler_, cuda::Sampler::Create(max_rows_, width(model_.graph.logits),
                                                          engine_.staged(), team_));
  size_t num_frequencies = 0;
  for (const Op& op : model_.graph.ops) {
    if (op.kind == OpKind::kRope && frequencies_at_.emplace(op.inverse_frequencies, nullptr).second)
      num_frequencies += op.inverse_frequencies.size();
  }
  LAMINA_ASSIGN_OR_RETURN(frequencies_,
                          cuda::DeviceBuffer::Create(num_frequencies * sizeof(float)));
  UploadFrequencies();
  return OkStatus();
}

void CudaSlices::UploadFrequencies() {
  float* place = frequencies_.as<float>();
  for (auto& [frequencies, at] : frequencies_at_) {
    engine_.staged().Copy(frequencies.data(), frequencies.size() * sizeof(float), place);
    at = place;
    place += frequencies.size();
  }
}

void CudaSlices::Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions) {
  engine_.staged().Enter();
  tokens_.assign(tokens.begin(), tokens.end());
  positions_.assign(positions.begin(), positions.end());
  next_op_ = 0;
  UploadRows();
}

void CudaSlices::UploadRows() {
  engine_.staged().Copy(tokens_.data(), tokens_.size() * sizeof(TokenId), device_tokens_);
  engine_.staged().Copy(positions_.data(), positions_.size() * sizeof(int32_t), device_positions_);
}

// It stops at all-reduces even if there are no rows, because other ranks wait there.
const Op* CudaSlices::RunTo(int k, ValueId there) {
  engine_.staged().Enter();
  EnterWeights(k);
  const std::vector<Op>& program = model_.slices[static_cast<size_t>(k)].program;
  size_t end = next_op_;
  bool is_there = false;
  while (end < program.size() && program[end].kind != OpKind::kAllReduce && !is_there)
    is_there = program[end++].output == there;
  Run({k, next_op_, end});
  // The all-reduce at which it has stopped, if it has.
  const Op* const stopped = end < program.size() && !is_there ? &program[end] : nullptr;
  next_op_ = stopped != nullptr ? end + 1 : there < 0 ? 0 : end;
  if (next_op_ == 0 && weights_.ring() != nullptr) weights_.ring()->Leave(k);
  if (!engine_.runs_ahead()) engine_.staged().Finish();
  return stopped;
}

void CudaSlices::EnterWeights(int k) {
  if (weights_.ring() == nullptr) return;
  places_.resize(model_.slices.size());
  const std::byte* const place = weights_.ring()->Enter(k);
  if (std::exchange(places_[static_cast<size_t>(k)], place) != place) graphs_.ClearSlice(k);
}

void CudaSlices::Run(const OpRange& range) {
  if (tokens_.empty() || range.begin == range.end) return;
  if (std::exchange(recorded_with_, engine_.version()) != engine_.version()) graphs_.Clear();
  const std::span<const Op> ops = std::span(model_.slices[static_cast<size_t>(range.slice)].program)
                                      .subspan(range.begin, range.end - range.begin);
  const std::optional<int64_t> rows = SliceGraphs::FilledRows(num_rows(), max_rows_);
  if (rows.has_value() && std::ranges::none_of(ops, NeedsTheHost))
    graphs_.Run(range, *rows, engine_.stream(), [&] { Launch(ops, *rows); });
  else
    Launch(ops, num_rows());
}

void CudaSlices::Launch(std::span<const Op> ops, int64_t rows) {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (i + 1 < ops.size() && LaunchAddNorm(ops[i], ops[i + 1], rows))
      ++i;
    else
      Launch(ops[i], rows);
  }
}

bool CudaSlices::LaunchAddNorm(const Op& add, const Op& norm, int64_t rows) {
  if (add.kind != OpKind::kAdd || norm.kind != OpKind::kRmsNorm || norm.inputs[0] != add.output)
    return false;
  float *const sum = value(add.output), *const y = value(norm.output);
  if (y == sum) return false;
  cuda::AddRmsNorm(in(add, 0), in(add, 1), vector(norm, 0), norm.eps, rows, width(norm.output), sum,
                   y, engine_.stream());
  return true;
}

void CudaSlices::KeepRows(int k, std::span<const int> rows) {
  engine_.staged().Enter();
  bool moves = false;
  for (size_t i = 0; i < rows.size(); ++i) moves |= rows[i] != static_cast<int>(i);
  if (moves) {
    engine_.staged().Copy(rows.data(), rows.size_bytes(), device_kept_);
    for (const ValueId id : LiveBefore(model_.slices[static_cast<size_t>(k)])) {
      const cuda::RowSet kept{std::ssize(rows), width(id), width(id), device_kept_};
      cuda::PackRows(value(id), kept, DType::kF32, spare_, engine_.stream());
      cuda::CopyOnDevice(value(id), spare_,
                         rows.size() * static_cast<size_t>(width(id)) * sizeof(float),
                         engine_.stream());
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    tokens_[i] = tokens_[static_cast<size_t>(rows[i])];
    positions_[i] = positions_[static_cast<size_t>(rows[i])];
  }
  tokens_.resize(rows.size());
  positions_.resize(rows.size());
  UploadRows();
}

void CudaSlices::Score(std::span<const ScoreWork> work, std::span<TokenScore> scores) {
  engine_.staged().Enter();
  sampler_->Score(value(model_.graph.logits), work, scores);
}

void CudaSlices::Sample(std::span<const SampleWork> work, std::span<SampledToken> tokens) {
  engine_.staged().Enter();
  sampler_->Sample(value(model_.graph.logits), work, tokens);
}

void CudaSlices::Launch(const Op& op, int64_t rows) {
  float* const y = value(op.output);
  switch (op.kind) {
    case OpKind::kTokens:
    case OpKind::kPositions: return;  // they stand in the order
    case OpKind::kEmbedding: {
      const CudaWeights::Table table = weights_.Rows(op.weights[0]);
      cuda::Embedding(table.data, table.dtype, width(op.output), device_tokens_, rows, y,
                      engine_.stream());
      return;
    }
    case OpKind::kPositionEmbedding: {
      const CudaWeights::Table table = weights_.Rows(op.weights[0]);
      table_rows_.clear();
      for (const int32_t position : positions_)
        table_rows_.push_back(static_cast<TokenId>(op.first_row + position));
      engine_.staged().Copy(table_rows_.data(), table_rows_.size() * sizeof(TokenId),
                            device_scratch_);
      cuda::Embedding(table.data, table.dtype, width(op.output), device_scratch_, rows, y,
                      engine_.stream());
      return;
    }
    case OpKind::kRmsNorm:
    case OpKind::kHeadNorm:
    case OpKind::kHeadLayerNorm:
    case OpKind::kLayerNorm: LaunchNorm(op, rows, y); return;
    case OpKind::kLinear:
      engine_.linear().Run(weights_.Matrix(op.weights[0]), in(op, 0), rows, vector(op, 1), y);
      return;
    case OpKind::kRope: {
      const RopeShape shape{op.num_heads, op.head_dim,
                            static_cast<int>(op.inverse_frequencies.size()) * 2, op.interleaved,
                            op.scale};
      cuda::Rope(in(op, 0), device_positions_, frequencies_at_.at(op.inverse_frequencies), shape,
                 rows, y, engine_.stream());
      return;
    }
    case OpKind::kGrowByPosition:
      cuda::GrowByPosition(in(op, 0), device_positions_, {op.scale, op.period}, rows,
                           width(op.output), y, engine_.stream());
      return;
    case OpKind::kExperts:
      experts_.Run(op, weights_, {in(op, 0), in(op, 1), rows, y}, engine_);
      return;
    case OpKind::kAttention: return;  // never part of a slice
    case OpKind::kAllReduce: return;  // RunTo's caller has a part in it
    default: LaunchEachElement(op, rows, y); return;
  }
}

void CudaSlices::LaunchNorm(const Op& op, int64_t rows, float* y) {
  cuda::Stream& stream = engine_.stream();
  if (op.kind == OpKind::kHeadNorm)
    return cuda::RmsNorm(in(op, 0), vector(op, 0), op.eps, rows * op.num_heads, op.head_dim, y,
                         stream);
  if (op.kind == OpKind::kRmsNorm)
    return cuda::RmsNorm(in(op, 0), vector(op, 0), op.eps, rows, width(op.output), y, stream);
  if (op.kind == OpKind::kHeadLayerNorm)
    return cuda::LayerNorm(in(op, 0), {vector(op, 0), nullptr, op.num_heads}, op.eps,
                           rows * op.num_heads, op.head_dim, y, stream);
  cuda::LayerNorm(in(op, 0), {vector(op, 0), vector(op, 1)}, op.eps, rows, width(op.output), y,
                  stream);
}

void CudaSlices::LaunchEachElement(const Op& op, int64_t rows, float* y) {
  cuda::Stream& stream = engine_.stream();
  const int64_t n = rows * width(op.output);
  switch (op.kind) {
    case OpKind::kSiluMul: cuda::SiluMul(in(op, 0), in(op, 1), n, y, stream); return;
    case OpKind::kGeluMul: cuda::GeluMul(in(op, 0), in(op, 1), n, y, stream); return;
    case OpKind::kSilu: cuda::Silu(in(op, 0), n, y, stream); return;
    case OpKind::kGelu: cuda::Gelu(in(op, 0), n, y, stream); return;
    case OpKind::kGeluTanh: cuda::GeluTanh(in(op, 0), n, y, stream); return;
    case OpKind::kRelu: cuda::Relu(in(op, 0), n, y, stream); return;
    case OpKind::kScale: cuda::Scale(in(op, 0), op.scale, n, y, stream); return;
    case OpKind::kSoftCap: cuda::SoftCap(in(op, 0), op.soft_cap, n, y, stream); return;
    case OpKind::kSigmoidGate:
      cuda::SigmoidGate(in(op, 0), in(op, 1), rows, width(op.output), y, stream);
      return;
    case OpKind::kAdd: cuda::Add(in(op, 0), in(op, 1), n, y, stream); return;
    case OpKind::kMul: cuda::Mul(in(op, 0), in(op, 1), n, y, stream); return;
    default: return;  // Launch has the others
  }
}

}  // namespace lamina
