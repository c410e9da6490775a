#include "compute_node/all_reduce.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compute_node/step_context.h"
#include "wire/codec.h"

namespace lamina {
namespace {

size_t WidthOf(const SlicedModel& model, ValueId value) {
  return static_cast<size_t>(model.graph.values[static_cast<size_t>(value)].width);
}

ValueId LastSum(const SlicedModel& model) {
  ValueId last = -1;
  for (const Op& op : model.slices.back().program) {
    if (op.kind == OpKind::kAllReduce) last = op.output;
  }
  return last;
}

}  // namespace

size_t MaxPartialSumBytes(const SlicedModel& model, DType dtype, int max_rows) {
  size_t width = 0;
  for (const Op& op : model.graph.ops) {
    if (op.kind == OpKind::kAllReduce) width = std::max(width, WidthOf(model, op.output));
  }
  return width == 0
             ? 0
             : static_cast<size_t>(max_rows) * width * static_cast<size_t>(ElementSize(dtype)) +
                   MaxStateBytes(max_rows);
}

AllReduce::AllReduce(ContextExchange& others, ComputeDevice& device, const LoadedModel& model,
                     DType wire_dtype, int num_batches, Clock::duration patience)
    : others_(others),
      device_(device),
      model_(model),
      wire_dtype_(wire_dtype),
      patience_(patience),
      last_(LastSum(model.sliced)),
      batches_(static_cast<size_t>(num_batches)) {}

int64_t AllReduce::NumElements(const Batch& batch, ValueId value) const {
  return static_cast<int64_t>(batch.num_rows * WidthOf(model_.sliced, value));
}

void AllReduce::Begin(Batch& batch, StepId step, const Op& op, size_t num_rows,
                      SliceRunner& slices) {
  batch.op = &op;
  batch.step = step;
  batch.num_rows = num_rows;
  batch.started = Clock::now();
  const int64_t count = NumElements(batch, op.output);
  batch.own.resize(static_cast<size_t>(count) * static_cast<size_t>(ElementSize(wire_dtype_)));
  const PackedParts own{slices.value(op.inputs[0]), RowParts::Whole(count), wire_dtype_};
  device_.Pack({&own, 1}, batch.own.data());
}

void AllReduce::Start(int number, StepId step, const Op& op, size_t num_rows, SliceRunner& slices) {
  Begin(batches_[static_cast<size_t>(number)], step, op, num_rows, slices);
  // Only rank 0 goes on behind the last sum. It has its own part, and the others hand over theirs.
  if (op.output == last_) return;
  const int ranks = model_.share.num_ranks;
  // Each rank begins with the one after it, so that no NIC receives all parts at once.
  for (int i = 1; i < ranks; ++i) {
    if (!Post(number, (model_.share.rank + i) % ranks, {}).ok()) return;
  }
}

bool AllReduce::HandOver(int number, StepId step, const Op& op, size_t num_rows,
                         SliceRunner& slices, StepResult so_far) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  Begin(batch, step, op, num_rows, slices);
  StepState state;
  state.so_far = std::move(so_far);
  const Status posted = Post(number, 0, state);
  batch.op = nullptr;
  return posted.ok();
}

Status AllReduce::Post(int number, int rank, const StepState& state) {
  const Batch& batch = batches_[static_cast<size_t>(number)];
  const std::span<std::byte> payload =
      others_.payload(NodeOf(rank), number, MessageKind::kPartialSum);
  std::memcpy(payload.data(), batch.own.data(), batch.own.size());
  const size_t bytes = batch.own.size() + WriteState(state, payload.subspan(batch.own.size()));
  return others_.Post(NodeOf(rank), number, batch.step, batch.op->output, batch.num_rows, bytes,
                      MessageKind::kPartialSum);
}

bool AllReduce::Ready(int number) {
  const Batch& batch = batches_[static_cast<size_t>(number)];
  for (int rank = 0; rank < model_.share.num_ranks; ++rank) {
    if (rank == model_.share.rank ||
        others_.arrived(NodeOf(rank), number, MessageKind::kPartialSum))
      continue;
    if (Clock::now() > batch.started + patience_) {
      (void)others_.Lose(
          NodeOf(rank),
          "step " + std::to_string(batch.step.value) + ": its part of " + batch.op->name +
              " did not come within " +
              std::to_string(std::chrono::duration_cast<milliseconds>(patience_).count()) + " ms");
    }
    others_.LoseIfSilent(NodeOf(rank), batch.started);
    return false;
  }
  return true;
}

Result<std::span<const std::byte>> AllReduce::PartOf(int number, int rank,
                                                     std::vector<StepResult>& told) {
  const Batch& batch = batches_[static_cast<size_t>(number)];
  if (rank == model_.share.rank) return std::span<const std::byte>(batch.own);
  const int from = NodeOf(rank);
  LAMINA_ASSIGN_OR_RETURN(const std::span<const std::byte> payload,
                          others_.Take(from, number, batch.step, batch.op->output, batch.num_rows,
                                       MessageKind::kPartialSum));
  if (payload.size() < batch.own.size()) {
    return others_.Lose(from, "sent " + std::to_string(payload.size()) + " bytes as its part of " +
                                  batch.op->name + ", expected " +
                                  std::to_string(batch.own.size()));
  }
  const std::span<const std::byte> behind = payload.subspan(batch.own.size());
  Result<StepState> state =
      Decode<StepState>({reinterpret_cast<const char*>(behind.data()), behind.size()});
  if (!state.ok())
    return others_.Lose(
        from, "sent a state behind its part of " + batch.op->name + " that cannot be parsed");
  if (state->so_far) told.push_back(*std::move(state->so_far));
  return payload.first(batch.own.size());
}

bool AllReduce::Finish(int number, SliceRunner& slices, std::vector<StepResult>& told) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const Op& op = *batch.op;
  float* const sum = slices.value(op.output);
  // Every rank adds the parts in the order of the ranks, its own in the dtype in which it was sent.
  // So all ranks have the same bits.
  for (int rank = 0; rank < model_.share.num_ranks; ++rank) {
    const Result<std::span<const std::byte>> part = PartOf(number, rank, told);
    if (!part.ok()) return false;
    if (rank == 0) {
      device_.Unpack(part->data(), wire_dtype_, RowParts::Whole(NumElements(batch, op.output)),
                     sum);
    } else {
      device_.AddUnpacked(part->data(), wire_dtype_, NumElements(batch, op.output), sum);
    }
  }
  batch.op = nullptr;
  return true;
}

}  // namespace lamina
