#include "manager/prefilled_executor.h"

#include "base/mutex.h"

namespace lamina {

std::vector<PrefilledExecutor::Step> PrefilledExecutor::TakeSteps() {
  MutexLock lock(mutex_);
  return std::exchange(steps_, {});
}

void PrefilledExecutor::Start(std::function<void(ExecutorEvent)> on_event) {
  nodes_->Start([this, on_event = std::move(on_event)](ExecutorEvent event) {
    if (event.kind == ExecutorEvent::Kind::kStepDone) Finish(event.result);
    on_event(std::move(event));
  });
}

void PrefilledExecutor::Submit(const StepPlan& plan, std::vector<NewSequence> added) {
  for (const SequenceId released : plan.released) unannounced_.erase(released);
  for (NewSequence& sequence : added) unannounced_[sequence.sequence] = std::move(sequence);
  StepPlan told = plan;
  told.dummy_prefill = true;
  std::vector<NewSequence> announced;
  std::vector<SequenceId> prefilled;
  Step step;
  step.batch = plan.batch;
  for (Work& work : told.work) {
    if (work.prefill) {
      if (work.sample) prefilled.push_back(work.sequence);
      work.sample = false;
      step.decodes_only = false;
      continue;
    }
    ++step.num_rows;
    for (const KvPart& part : work.route)
      step.attention[part.node].AddDecode(part.num_stored +
                                          static_cast<int64_t>(part.slots.size()));
    if (auto sequence = unannounced_.extract(work.sequence)) {
      sequence.mapped().tokens.push_back(work.tokens.front());
      announced.push_back(std::move(sequence.mapped()));
    }
  }
  step.submitted = Clock::now();
  {
    MutexLock lock(mutex_);
    in_flight_[plan.step] = {std::move(step), std::move(prefilled)};
  }
  nodes_->Submit(told, std::move(announced));
}

void PrefilledExecutor::Finish(StepResult& result) {
  MutexLock lock(mutex_);
  auto found = in_flight_.extract(result.step);
  if (!found) return;
  InFlight& done = found.mapped();
  for (const SequenceId sequence : done.prefilled) {
    result.sampled.push_back({sequence, {.token = kFirstToken}});
  }
  done.step.compute_node = microseconds(result.total_us);
  done.step.attention_wait = microseconds(result.attention_wait_us);
  steps_.push_back(std::move(done.step));
}

}  // namespace lamina
