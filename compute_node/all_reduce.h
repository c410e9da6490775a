// Adds up the partial sums that the ranks of a stage compute (splitter/tensor_parallel.h).
//
// A rank sends its part to each of the others and runs other batches until their parts are here.
// Then it adds up all parts in the order of the ranks, its own in the wire dtype like the others',
// so that all ranks get the same bits. The last sum of a step is needed only by rank 0, which
// samples; the other ranks send with their parts what they know of the step's failures and times.
//
// Use: Start, Ready until it is true, then Finish; or HandOver where EndsHere.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "compute_node/compute_device.h"
#include "compute_node/context_exchange.h"
#include "wire/step_messages.h"

namespace lamina {

// Payload bytes of the largest partial sum of `max_rows` rows; 0 if the model has no all-reduce.
size_t MaxPartialSumBytes(const SlicedModel& model, DType dtype, int max_rows);

struct AllReduceOptions {
  DType wire_dtype = DType::kF32;  // in which parts travel
  uint32_t batch = 0;
  Clock::duration patience{};  // how long another rank may take for its part
};

// The sums of one batch's steps. Thread: one owner.
class AllReduce {
 public:
  // Borrows everything but the options.
  AllReduce(ContextExchange& others, ComputeDevice& device, const LoadedModel& model,
            const AllReduceOptions& options);

  // Begins the sum of `op`: sends this rank's part, value(op.inputs[0]) of `slices`, to all others,
  // unless it is the step's last sum, which rank 0 alone adds up. A rank that cannot be reached is
  // kept in lost() of the exchange. REQUIRES: !under_way() and !EndsHere(op).
  void Start(StepId step, const Op& op, size_t num_rows, SliceRunner& slices);
  bool under_way() const { return op_ != nullptr; }
  // Whether all parts are here. A rank that has been late or silent for too long counts as lost.
  bool Ready();

  // Writes the sum to value(op.output) and appends to `told` what came with the parts. Returns
  // false if a rank is lost. REQUIRES: Ready().
  bool Finish(SliceRunner& slices, std::vector<StepResult>& told);

  // Whether the step ends on this rank with the sum of `op`. Then HandOver takes the place of
  // Start: it sends this rank's part to rank 0, with what this rank knows of the step. Returns
  // false if rank 0 is lost.
  bool EndsHere(const Op& op) const { return model_.share.rank != 0 && op.output == last_; }
  bool HandOver(StepId step, const Op& op, size_t num_rows, SliceRunner& slices, StepResult so_far);

  // Drops the sum under way, because its step is given up.
  void Forget() { op_ = nullptr; }

 private:
  int NodeOf(int rank) const { return model_.share.stage * model_.share.num_ranks + rank; }
  PassedMessage message() const {
    return {MessageKind::kPartialSum, options_.batch, step_, op_->output, num_rows_};
  }
  int64_t num_elements() const;
  // Keeps this rank's part.
  void Begin(StepId step, const Op& op, size_t num_rows, SliceRunner& slices);
  Status Post(int rank, const StepState& state);
  Result<std::span<const std::byte>> PartOf(int rank, std::vector<StepResult>& told);

  ContextExchange& others_;
  ComputeDevice& device_;
  const LoadedModel& model_;
  const AllReduceOptions options_;
  const ValueId last_;  // the step's last sum

  const Op* op_ = nullptr;  // null if no sum is under way
  StepId step_;
  size_t num_rows_ = 0;
  std::vector<std::byte> own_;  // this rank's part as it was sent
  TimePoint started_;
};

}  // namespace lamina
