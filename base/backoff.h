// How long a polling loop keeps polling before it sleeps.
#pragma once

#include <sched.h>

#include "base/clock.h"

namespace lamina {

// Waking a sleeping thread costs about 50 us, so a loop that expects something soon polls on for a while. Politely: after the first
// microseconds it offers its core to any other thread that wants to run, so that more processes than cores still make progress. Value type.
class Backoff {
 public:
  explicit Backoff(Clock::duration patience) : patience_(patience) {}

  // Something happened: start anew.
  void Reset() { polls_ = 0; }

  // Nothing happened in this poll. Returns true when it is time to sleep; the count starts anew then.
  bool Idle() {
    if (polls_++ == 0) since_ = Clock::now();
    if (polls_ < kEagerPolls) {
      __builtin_ia32_pause();
      return false;
    }
    if (Clock::now() - since_ >= patience_) {
      polls_ = 0;
      return true;
    }
    sched_yield();
    return false;
  }

 private:
  static constexpr int kEagerPolls = 64;  // a few microseconds

  Clock::duration patience_;
  TimePoint since_;
  int polls_ = 0;
};

}  // namespace lamina
