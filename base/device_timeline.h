// The time line of one modelled device: pieces of work follow each other, and waiting for them
// costs hardly any CPU.
#pragma once

#include "base/clock.h"

namespace lamina {

// Value type. Thread: one owner.
class DeviceTimeline {
 public:
  // Books work that becomes ready at `now` and takes `cost`; returns when it is done. The work
  // starts when all earlier work is done, so on a busy device a caller that wakes up late from one
  // piece of work does not delay the next one. A negative cost counts as zero.
  TimePoint Book(TimePoint now, Clock::duration cost) {
    free_at_ = std::max(now, free_at_) + std::max(cost, Clock::duration::zero());
    return free_at_;
  }

  TimePoint free_at() const { return free_at_; }  // when all booked work is done

  // Books work that is ready now and sleeps until it is done.
  void Run(Clock::duration cost);

 private:
  TimePoint free_at_{};
};

// Seconds of the cost model as a duration. More than a year, and NaN, become a year: nanoseconds
// could overflow.
inline Clock::duration FromSeconds(double seconds) {
  constexpr double kYear = 366.0 * 86400;
  if (!(seconds < kYear)) seconds = kYear;
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Returns at `at`, or as little after it as the kernel and other threads allow: sleeps until
// shortly before, then polls the clock. Sets the calling thread's timer slack to the minimum.
void SleepUntil(TimePoint at);

}  // namespace lamina
