#include "scheduler/batch_steps.h"

#include <algorithm>
#include <utility>

namespace lamina {

BatchSteps::BatchSteps(const SchedulerOptions& options, const StepCycleOptions& cycle,
                       std::unique_ptr<QueuePolicy> queue,
                       std::unique_ptr<PlacementPolicy> placement)
    : chooses_pipeline_(cycle.chooses),
      scheduler_(options, std::move(queue), std::move(placement)),
      cycle_(cycle),
      in_flight_(static_cast<size_t>(options.num_batches)) {
  scheduler_.SetPipeline(cycle.pipeline);
}

BatchSteps::Completed BatchSteps::Complete(size_t batch, TimePoint now,
                                           std::span<const Scheduler::Sampled> sampled,
                                           std::optional<StepCost> cost) {
  Completed completed;
  // A step without work only frees what is on nodes: it says nothing about rounds.
  if (chooses_pipeline_ && in_flight_[batch]->works) {
    const bool prefills =
        std::ranges::any_of(in_flight_, [](const auto& step) { return step && step->of_prompts; });
    completed.pipeline =
        cycle_.TakeResult(batch, now, prefills, scheduler_.stats().num_running, std::move(cost));
    if (completed.pipeline) scheduler_.SetPipeline(*completed.pipeline);
  }
  completed.taken = scheduler_.CompleteStep(sampled, static_cast<int>(batch));
  in_flight_[batch].reset();
  return completed;
}

void BatchSteps::DropSteps() {
  for (std::optional<InFlight>& step : in_flight_) step.reset();
}

void BatchSteps::Abandon() {
  DropSteps();
  scheduler_.AbandonSteps();
}

void BatchSteps::Delay(Clock::duration missed) {
  for (std::optional<InFlight>& step : in_flight_) {
    if (step) step->submitted += missed;
  }
}

}  // namespace lamina
