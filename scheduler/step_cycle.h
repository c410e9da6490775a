// Which batch gets its next step when, and through which pipeline: the part of the manager's loop
// that needs neither nodes nor a clock, so that the manager runs it in real time and the simulator
// in virtual time.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "scheduler/pipeline.h"

namespace lamina {

struct StepCycleOptions {
  Pipeline pipeline;     // at first
  bool chooses = false;  // another is taken when steps show that it is faster
  int max_batches = 1;   // in flight
  int num_compute = 1;   // compute nodes, or stages of several
  bool stages = false;   // each compute node runs its own range of slices
};

// Thread: one owner.
class StepCycle {
 public:
  explicit StepCycle(const StepCycleOptions& options);

  const Pipeline& pipeline() const { return pipeline_; }

  // Calls plan(batch) for batches that have no step in flight, twice round: one may also give
  // another sequences. The batch that has waited longest goes first: it may need what the others
  // would take. `plan` returns whether it sent a step, and `in_flight` knows of it then.
  template <typename InFlight, typename Plan>
  void PlanSteps(InFlight in_flight, Plan plan) {
    const size_t num_batches = last_result_.size(), first = last_batch_ + 1;
    for (size_t i = 0; i < 2 * num_batches; ++i) {
      const size_t batch = (first + i) % num_batches;
      if (!in_flight(batch) && plan(batch)) last_batch_ = batch;
    }
  }

  void NothingToPlan(size_t batch) { last_result_[batch] = {}; }

  // The result of a step of `batch` came at `now`. `prefills`: some step in flight did, this one
  // included; only steps that decode are compared, and only while nothing else is in flight with
  // them. `cost`: none if the nodes did not time it; its round is filled in here. Returns the
  // pipeline to take from now on if it is another one.
  std::optional<Pipeline> TakeResult(size_t batch, TimePoint now, bool prefills, int num_running,
                                     std::optional<StepCost> cost);

  // So many compute nodes are left of those at first; what was measured is forgotten. One batch
  // fewer for each that is lost.
  const Pipeline& LeaveNodes(int num_left);

 private:
  const StepCycleOptions options_;
  Pipeline pipeline_;
  std::optional<PipelineChooser> chooser_;  // always there
  // By batch; the epoch: its step before was not a decode step of the same pipeline.
  std::vector<TimePoint> last_result_;
  size_t last_batch_ = 0;  // planned last
};

}  // namespace lamina
