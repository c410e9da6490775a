// How long a polling loop keeps polling before it sleeps.
#pragma once

#include <sched.h>

#include "base/clock.h"

namespace lamina {

// Waking a sleeping thread costs about 50 us, so a loop that expects something soon polls on for a
// while. Politely: after the first microseconds it offers its core to any other thread that wants
// to run; one that keeps it for long computes there, and the loop sleeps. And while waits last
// long, what is waited for may need this very core: after a wait longer than the patience it polls
// only briefly, until one that it slept in was shorter. So more processes than cores still make
// progress. Value type.
class Backoff {
 public:
  explicit Backoff(Clock::duration patience) : patience_(patience), allowed_(patience) {}

  // Something happened: start anew.
  void Reset() {
    polls_ = 0;
    if (!slept_) return;
    slept_ = false;
    allowed_ = Clock::now() - wait_began_ > patience_ ? patience_ / kBrief : patience_;
  }

  // Nothing happened in this poll. Returns true when it is time to sleep; the count starts anew
  // then.
  bool Idle() {
    if (polls_++ == 0) {
      polling_since_ = Clock::now();
      if (!slept_) wait_began_ = polling_since_;
    }
    if (polls_ < kEagerPolls) {
      __builtin_ia32_pause();
      return false;
    }
    const TimePoint now = Clock::now();
    if (now - polling_since_ < allowed_) {
      sched_yield();
      if (Clock::now() - now < kTaken) return false;
    }
    polls_ = 0;
    slept_ = true;
    return true;
  }

 private:
  static constexpr int kEagerPolls = 64;                        // a few microseconds
  static constexpr int kBrief = 16;                             // parts of the patience
  static constexpr Clock::duration kTaken = microseconds(200);  // by more than another that polls

  Clock::duration patience_;
  Clock::duration allowed_;  // polling now
  TimePoint polling_since_;  // the first poll, or the first after it slept
  TimePoint wait_began_;
  bool slept_ = false;  // in this wait
  int polls_ = 0;
};

}  // namespace lamina
