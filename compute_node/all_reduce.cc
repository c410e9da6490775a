#include "compute_node/all_reduce.h"

#include <algorithm>
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
                     const AllReduceOptions& options)
    : others_(others),
      device_(device),
      model_(model),
      options_(options),
      last_(LastSum(model.sliced)) {}

int64_t AllReduce::num_elements() const {
  return static_cast<int64_t>(num_rows_ * WidthOf(model_.sliced, op_->output));
}

void AllReduce::Begin(StepId step, const Op& op, size_t num_rows, SliceRunner& slices) {
  op_ = &op;
  step_ = step;
  num_rows_ = num_rows;
  started_ = Clock::now();
  own_.resize(static_cast<size_t>(num_elements()) *
              static_cast<size_t>(ElementSize(options_.wire_dtype)));
  const PackedParts own{slices.value(op.inputs[0]), RowParts::Whole(num_elements()),
                        options_.wire_dtype};
  device_.Pack({&own, 1}, own_.data());
}

void AllReduce::Start(StepId step, const Op& op, size_t num_rows, SliceRunner& slices) {
  Begin(step, op, num_rows, slices);
  // Only rank 0 goes on behind the last sum. It has its own part, and the others hand over theirs.
  if (op.output == last_) return;
  const int ranks = model_.share.num_ranks;
  // Each rank begins with the one after it, so that no NIC receives all parts at once.
  for (int i = 1; i < ranks; ++i) {
    if (!Post((model_.share.rank + i) % ranks, {}).ok()) return;
  }
}

bool AllReduce::HandOver(StepId step, const Op& op, size_t num_rows, SliceRunner& slices,
                         StepResult so_far) {
  Begin(step, op, num_rows, slices);
  StepState state;
  state.so_far = std::move(so_far);
  const Status posted = Post(0, state);
  op_ = nullptr;
  return posted.ok();
}

Status AllReduce::Post(int rank, const StepState& state) {
  const std::span<std::byte> payload =
      others_.payload(NodeOf(rank), MessageKind::kPartialSum, options_.batch);
  std::ranges::copy(own_, payload.begin());
  const size_t bytes = own_.size() + WriteState(state, payload.subspan(own_.size()));
  return others_.Post(NodeOf(rank), message(), bytes);
}

bool AllReduce::Ready() {
  for (int rank = 0; rank < model_.share.num_ranks; ++rank) {
    if (rank == model_.share.rank ||
        others_.arrived(NodeOf(rank), MessageKind::kPartialSum, options_.batch))
      continue;
    if (Clock::now() > started_ + options_.patience) {
      (void)others_.Lose(
          NodeOf(rank),
          "step " + std::to_string(step_.value) + ": its part of " + op_->name +
              " did not come within " +
              std::to_string(std::chrono::duration_cast<milliseconds>(options_.patience).count()) +
              " ms");
    }
    others_.LoseIfSilent(NodeOf(rank), started_);
    return false;
  }
  return true;
}

Result<std::span<const std::byte>> AllReduce::PartOf(int rank, std::vector<StepResult>& told) {
  if (rank == model_.share.rank) return std::span<const std::byte>(own_);
  const int from = NodeOf(rank);
  LAMINA_ASSIGN_OR_RETURN(const std::span<const std::byte> payload, others_.Take(from, message()));
  if (payload.size() < own_.size()) {
    return others_.Lose(from, "sent " + std::to_string(payload.size()) + " bytes as its part of " +
                                  op_->name + ", expected " + std::to_string(own_.size()));
  }
  const std::span<const std::byte> behind = payload.subspan(own_.size());
  Result<StepState> state =
      Decode<StepState>({reinterpret_cast<const char*>(behind.data()), behind.size()});
  if (!state.ok())
    return others_.Lose(from,
                        "sent a state behind its part of " + op_->name + " that cannot be parsed");
  if (state->so_far) told.push_back(*std::move(state->so_far));
  return payload.first(own_.size());
}

bool AllReduce::Finish(SliceRunner& slices, std::vector<StepResult>& told) {
  const Op& op = *op_;
  float* const sum = slices.value(op.output);
  // Every rank adds the parts in the order of the ranks, its own in the dtype in which it was sent.
  // So all ranks have the same bits.
  for (int rank = 0; rank < model_.share.num_ranks; ++rank) {
    const Result<std::span<const std::byte>> part = PartOf(rank, told);
    if (!part.ok()) return false;
    if (rank == 0) {
      device_.Unpack(part->data(), options_.wire_dtype, RowParts::Whole(num_elements()), sum);
    } else {
      device_.AddUnpacked(part->data(), options_.wire_dtype, num_elements(), sum);
    }
  }
  op_ = nullptr;
  return true;
}

}  // namespace lamina
