// What one modelled device does when: work follows on work, and waiting for it costs no CPU.
#pragma once

#include "base/clock.h"

namespace lamina {

// Value type. Thread: one owner.
class DeviceTimeline {
 public:
  // Books work of `cost` that becomes ready at `now`; returns when it is done. It starts when the
  // device has done what was booked before, so whoever wakes up late from one piece of work does
  // not delay the next one on a busy device.
  TimePoint Book(TimePoint now, Clock::duration cost) {
    free_at_ = std::max(now, free_at_) + std::max(cost, Clock::duration::zero());
    return free_at_;
  }

  TimePoint free_at() const { return free_at_; }  // all that was booked is done then

  // Books work that is ready now and returns when it is done.
  void Run(Clock::duration cost);

 private:
  TimePoint free_at_{};
};

// Seconds of the cost model as a duration. More than a year is a year, as nanoseconds would
// overflow.
inline Clock::duration FromSeconds(double seconds) {
  constexpr double kYear = 366.0 * 86400;
  if (!(seconds < kYear)) seconds = kYear;
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Returns at `at`, or as little after it as the kernel and the other threads allow. Asleep until
// shortly before, then looking at the clock.
void SleepUntil(TimePoint at);

}  // namespace lamina
