// Adds up the partial sums that the ranks of a stage compute (splitter/tensor_parallel.h).
//
// A rank sends its part to each of the others and runs other batches until theirs are here. Then it
// adds up all parts in the order of the ranks, its own as the others got it: all ranks have the
// same bits. The last sum of a step is only needed by rank 0, which samples; what the other ranks
// know of the step's failures and times comes with their parts.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "compute_node/compute_device.h"
#include "compute_node/context_exchange.h"
#include "wire/control.pb.h"

namespace lamina {

// Of the largest message, with `max_rows` rows.
size_t MaxPartialSumBytes(const SlicedModel& model, DType dtype, int max_rows);

// Thread: one owner.
class AllReduce {
 public:
  // Borrows everything. `patience`: how long another rank may take for its part.
  AllReduce(ContextExchange& others, ComputeDevice& device, const LoadedModel& model,
            DType wire_dtype, int num_batches, Clock::duration patience);

  // Of one batch at a time: Start sends this rank's part, in value(op.inputs[0]) of `slices`,
  // unless nobody needs it; then Finish when Ready. Errors are kept in the exchange's lost().
  void Start(int batch, StepId step, const Op& op, size_t num_rows, SliceRunner& slices);
  bool under_way(int batch) const { return batches_[static_cast<size_t>(batch)].op != nullptr; }
  bool Ready(int batch);  // a rank that is late, or silent, is lost

  // Writes the sum to value(op.output); what came with the parts goes to `told`. False: a rank is
  // lost.
  bool Finish(int batch, SliceRunner& slices, std::vector<control::StepResult>& told);

  // Instead of Start, where EndsHere: hands this rank's part of the last sum to rank 0, with what
  // it knows of the step. False: a rank is lost.
  bool EndsHere(const Op& op) const { return model_.share.rank != 0 && op.output == last_; }
  bool HandOver(int batch, StepId step, const Op& op, size_t num_rows, SliceRunner& slices,
                control::StepResult so_far);

  // Its step is given up.
  void Forget(int batch) { batches_[static_cast<size_t>(batch)].op = nullptr; }

 private:
  struct Batch {
    const Op* op = nullptr;  // null: none is under way
    StepId step;
    size_t num_rows = 0;
    std::vector<std::byte> own;  // this rank's part as it was sent
    TimePoint started;
  };

  int NodeOf(int rank) const { return model_.share.stage * model_.share.num_ranks + rank; }
  int64_t NumElements(const Batch& batch, ValueId value) const;
  void Begin(Batch& batch, StepId step, const Op& op, size_t num_rows, SliceRunner& slices);
  Status Post(int number, int rank, const control::StepState& state);
  Result<std::span<const std::byte>> PartOf(int number, int rank,
                                            std::vector<control::StepResult>& told);

  ContextExchange& others_;
  ComputeDevice& device_;
  const LoadedModel& model_;
  const DType wire_dtype_;
  const Clock::duration patience_;
  const ValueId last_;  // the step's last sum
  std::vector<Batch> batches_;
};

}  // namespace lamina
