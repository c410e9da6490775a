// Which batch gets its next step when, and through which pipeline: the part of the manager's loop
// that needs neither nodes nor a clock, so that the manager runs it in real time and the simulator
// in virtual time.
//
// Use: PlanSteps whenever a batch may have something to do, TakeResult for each step's result.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "scheduler/pipeline.h"

namespace lamina {

struct StepCycleOptions {
  Pipeline pipeline;     // to begin with
  bool chooses = false;  // whether to change the pipeline when another promises to be faster
  int max_batches = 1;   // most batches in flight
  int num_compute = 1;   // number of compute nodes; with `stages`, the number of stages
  bool stages = false;   // each compute node runs its own range of slices
};

// Thread: one owner.
class StepCycle {
 public:
  explicit StepCycle(const StepCycleOptions& options);

  const Pipeline& pipeline() const { return pipeline_; }

  // Calls plan(batch) for batches that have no step in flight. `in_flight(batch)` says whether one
  // has; `plan` returns whether it sent a step, and `in_flight` must know of that step from then
  // on.
  //
  // Begins behind the batch that was planned last, so that the batch which has waited longest comes
  // first: it may need the slots that the others would take. Goes round twice, because planning one
  // batch may move sequences into another that had nothing to do before.
  template <typename InFlight, typename Plan>
  void PlanSteps(InFlight in_flight, Plan plan) {
    const size_t num_batches = last_result_.size(), first = last_batch_ + 1;
    for (size_t i = 0; i < 2 * num_batches; ++i) {
      const size_t batch = (first + i) % num_batches;
      if (!in_flight(batch) && plan(batch)) last_batch_ = batch;
    }
  }

  // The batch sits out a step, so the time to its next result is not that of one round.
  void NothingToPlan(size_t batch) { last_result_[batch] = {}; }

  // The result of a step of `batch` came at `now`. `prefills` says whether any step in flight, this
  // one included, has prefill work: pipelines are compared by rounds in which all batches only
  // decode. `cost` is nullopt if the nodes did not time the step; its `round` is filled in here.
  // `num_running` is the number of sequences in all batches. Returns the pipeline to use from now
  // on if it differs from pipeline() before.
  std::optional<Pipeline> TakeResult(size_t batch, TimePoint now, bool prefills, int num_running,
                                     std::optional<StepCost> cost);

  // `num_left` of the compute nodes in the options are left. Takes one batch away for each node
  // that is lost, forgets what was measured, and returns the new pipeline.
  const Pipeline& LeaveNodes(int num_left);

 private:
  const StepCycleOptions options_;
  Pipeline pipeline_;
  // Never empty; optional only so that LeaveNodes can replace it.
  std::optional<PipelineChooser> chooser_;
  // By batch. Zero if the batch's last step is no decode step of the present pipeline, so that the
  // time from it to the next result measures nothing.
  std::vector<TimePoint> last_result_;
  size_t last_batch_ = 0;  // planned last
};

}  // namespace lamina
