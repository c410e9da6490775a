// Adds up the partial sums that the ranks of a stage compute (splitter/tensor_parallel.h).
//
// A rank sends its part to each of the others and runs other batches until their parts are here.
// Then it adds up all parts in the order of the ranks, its own in the wire dtype like the others',
// so that all ranks get the same bits. The last sum of a step is needed only by rank 0, which
// samples; the other ranks send with their parts what they know of the step's failures and times.
//
// Use, for each batch: Start, Ready until it is true, then Finish; or HandOver where EndsHere.
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

// Thread: one owner.
class AllReduce {
 public:
  // Borrows everything. `patience` is how long another rank may take for its part.
  AllReduce(ContextExchange& others, ComputeDevice& device, const LoadedModel& model,
            DType wire_dtype, int num_batches, Clock::duration patience);

  // Begins the sum of `op`: sends this rank's part, value(op.inputs[0]) of `slices`, to all others,
  // unless it is the step's last sum, which rank 0 alone adds up. A rank that cannot be reached is
  // kept in lost() of the exchange. REQUIRES: !under_way(batch) and !EndsHere(op).
  void Start(int batch, StepId step, const Op& op, size_t num_rows, SliceRunner& slices);
  bool under_way(int batch) const { return batches_[static_cast<size_t>(batch)].op != nullptr; }
  // Whether all parts are here. A rank that has been late or silent for too long counts as lost.
  bool Ready(int batch);

  // Writes the sum to value(op.output) and appends to `told` what came with the parts. Returns
  // false if a rank is lost. REQUIRES: Ready(batch).
  bool Finish(int batch, SliceRunner& slices, std::vector<StepResult>& told);

  // Whether the step ends on this rank with the sum of `op`. Then HandOver takes the place of
  // Start: it sends this rank's part to rank 0, with what this rank knows of the step. Returns
  // false if rank 0 is lost.
  bool EndsHere(const Op& op) const { return model_.share.rank != 0 && op.output == last_; }
  bool HandOver(int batch, StepId step, const Op& op, size_t num_rows, SliceRunner& slices,
                StepResult so_far);

  // Drops the batch's sum, because its step is given up.
  void Forget(int batch) { batches_[static_cast<size_t>(batch)].op = nullptr; }

 private:
  struct Batch {
    const Op* op = nullptr;  // null if no sum is under way
    StepId step;
    size_t num_rows = 0;
    std::vector<std::byte> own;  // this rank's part as it was sent
    TimePoint started;
  };

  int NodeOf(int rank) const { return model_.share.stage * model_.share.num_ranks + rank; }
  int64_t NumElements(const Batch& batch, ValueId value) const;
  void Begin(Batch& batch, StepId step, const Op& op, size_t num_rows, SliceRunner& slices);
  Status Post(int number, int rank, const StepState& state);
  Result<std::span<const std::byte>> PartOf(int number, int rank, std::vector<StepResult>& told);

  ContextExchange& others_;
  ComputeDevice& device_;
  const LoadedModel& model_;
  const DType wire_dtype_;
  const Clock::duration patience_;
  const ValueId last_;  // the step's last sum
  std::vector<Batch> batches_;
};

}  // namespace lamina
