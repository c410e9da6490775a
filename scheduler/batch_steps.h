// The scheduler with the steps of its batches that are in flight: what the manager
// (manager/engine_core.h) and the simulator (plan/simulate/simulation.cc) do alike from one result
// to the next. Needs neither nodes nor a clock.
//
// Use: PlanSteps whenever a batch may have something to do, and Complete for each step's result.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "scheduler/policies.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_cycle.h"

namespace lamina {

// Whether the work is of a prompt; also what is left of one whose beginning is shared, which comes
// as decode work.
inline bool IsOfPrompt(const Work& work) { return work.prefill || work.tokens.size() > 1; }

// Thread: one owner.
class BatchSteps {
 public:
  // The step of a batch that has no result yet.
  struct InFlight {
    StepPlan plan;
    bool works = false;       // it does not only free what is on nodes
    bool of_prompts = false;  // it computes a part of a prompt
    TimePoint submitted;
  };

  BatchSteps(const SchedulerOptions& options, const StepCycleOptions& cycle,
             std::unique_ptr<QueuePolicy> queue, std::unique_ptr<PlacementPolicy> placement);

  // For what concerns sequences and pools. Steps and pipelines go through this object.
  Scheduler& scheduler() { return scheduler_; }
  const Scheduler& scheduler() const { return scheduler_; }
  const Pipeline& pipeline() const { return cycle_.pipeline(); }

  // By batch; nullopt: the batch has no step in flight.
  const std::vector<std::optional<InFlight>>& in_flight() const { return in_flight_; }

  // Plans steps for batches that have none in flight, in the order of StepCycle::PlanSteps, and
  // calls submit(StepPlan&) for each one that is to be sent. From then on it is in flight. What
  // submit takes out of the plan is not missed here.
  template <typename Submit>
  void PlanSteps(TimePoint now, Submit submit) {
    const auto is_busy = [this](size_t batch) { return in_flight_[batch].has_value(); };
    cycle_.PlanSteps(is_busy, [&](size_t batch) {
      StepPlan plan = scheduler_.NextStep(static_cast<int>(batch));
      if (plan.work.empty()) cycle_.NothingToPlan(batch);
      if (plan.empty()) return false;
      const bool works = !plan.work.empty();
      const bool of_prompts = std::ranges::any_of(plan.work, IsOfPrompt);
      in_flight_[batch] = {std::move(plan), works, of_prompts, now};
      submit(in_flight_[batch]->plan);
      return true;
    });
  }

  // What a result has changed.
  struct Completed {
    std::vector<size_t> taken;         // as Scheduler::CompleteStep
    std::optional<Pipeline> pipeline;  // used from now on, if it is another one than before
  };
  // The result of the batch's step came at `now`, with these tokens: the step is no longer in
  // flight. `cost`: as StepCycle::TakeResult; not looked at unless the pipeline is chosen by what
  // steps cost. REQUIRES: the batch has a step in flight.
  Completed Complete(size_t batch, TimePoint now, std::span<const Scheduler::Sampled> sampled,
                     std::optional<StepCost> cost);

  // No step in flight will have a result.
  void DropSteps();

  // Nor do the compute nodes know anything: see Scheduler::AbandonSteps.
  void Abandon();

  // So many compute nodes, or stages, are left of those that the options name.
  void LeaveNodes(int num_left) { scheduler_.SetPipeline(cycle_.LeaveNodes(num_left)); }

  // Nobody could answer for so long: steps count as submitted that much later.
  void Delay(Clock::duration missed);

 private:
  const bool chooses_pipeline_;
  Scheduler scheduler_;
  StepCycle cycle_;
  std::vector<std::optional<InFlight>> in_flight_;
};

}  // namespace lamina
