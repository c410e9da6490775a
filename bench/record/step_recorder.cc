#include "bench/record/step_recorder.h"

#include <algorithm>

#include "scheduler/batch_steps.h"

namespace lamina {

void StepRecorder::Measure(std::vector<int> intervals, int num_rows, int num_steps) {
  MutexLock lock(mutex_);
  series_.clear();
  for (const int interval : intervals) series_.push_back({interval, 0, {}});
  num_rows_ = num_rows;
  num_steps_ = static_cast<size_t>(num_steps);
  at_ = submitted_ = 0;
}

std::optional<std::vector<StepRecorder::Series>> StepRecorder::Await(TimePoint latest) {
  MutexLock lock(mutex_);
  while (at_ < series_.size()) {
    if (!changed_.WaitUntil(lock, latest)) return std::nullopt;
  }
  return std::exchange(series_, {});
}

void StepRecorder::SetInterval(std::optional<int> interval) {
  MutexLock lock(mutex_);
  interval_ = interval;
}

void StepRecorder::Submit(const StepPlan& plan, std::vector<NewSequence> added) {
  const TimePoint now = Clock::now();
  StepPlan told = plan;
  {
    MutexLock lock(mutex_);
    if (interval_) told.offload_interval = interval_;
    const bool counts = std::ssize(plan.work) == num_rows_ &&
                        std::ranges::none_of(plan.work, IsOfPrompt) && at_ < series_.size();
    if (counts) {
      double context = 0;
      for (const Work& work : plan.work) context += static_cast<double>(work.first_position + 1);
      if (submitted_ > 1)
        series_[at_].seconds.push_back(std::chrono::duration<double>(now - last_).count());
      if (submitted_ == num_steps_ + 1) {
        series_[at_].context /= static_cast<double>(num_steps_ * plan.work.size());
        ++at_;
        submitted_ = 0;
        if (at_ == series_.size()) changed_.NotifyAll();
      }
      if (at_ < series_.size()) {
        if (submitted_ > 0) series_[at_].context += context;
        told.offload_interval = series_[at_].interval;
        ++submitted_;
        last_ = now;
      }
    }
  }
  nodes_->Submit(told, std::move(added));
}

}  // namespace lamina
