// Time as a test sets it: while an object of this class lives, the process's clock (base/clock.h)
// stands still until the test moves it.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace lamina {

// REQUIRES: there is one at a time, and no other thread reads the clock while it is made or ends.
class VirtualClock {
 public:
  // Begins at a day, so that times before the beginning are no special values.
  VirtualClock() {
    now_ = std::chrono::hours(24);
    Clock::Read([]() noexcept { return TimePoint(now_.load()); });
  }
  ~VirtualClock() { Clock::Read(nullptr); }
  VirtualClock(const VirtualClock&) = delete;
  VirtualClock& operator=(const VirtualClock&) = delete;

  void Advance(Clock::duration by) { now_ = now_.load() + by; }
  // Does nothing if that time is over already.
  void AdvanceTo(TimePoint at) {
    if (at.time_since_epoch() > now_.load()) now_ = at.time_since_epoch();
  }

 private:
  static inline std::atomic<Clock::duration> now_{};
};

}  // namespace lamina
