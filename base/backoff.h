// Decides how long a polling loop keeps polling before it sleeps.
//
//   Backoff backoff(patience);
//   while (true) {
//     if (PollOnce()) backoff.Reset();
//     else if (backoff.Idle()) SleepUntilSomethingComes();
//   }
#pragma once

#include <sched.h>

#include "base/clock.h"

namespace lamina {

// Waking a sleeping thread costs about 50 us, so a loop that expects something soon polls for a
// while. It leaves the core to others where it can, so that more processes than cores still make
// progress. After the first microseconds each idle poll yields the core; if another thread then
// keeps it for long, that thread computes, and the loop goes to sleep. And what the loop waits for
// may need this very core: after a wait longer than the patience the loop polls only briefly, until
// a wait in which it slept was shorter than that. Value type. Thread: one owner.
class Backoff {
 public:
  explicit Backoff(Clock::duration patience) : patience_(patience), allowed_(patience) {}

  // This poll has found something: the next wait begins.
  void Reset() {
    polls_ = 0;
    if (!slept_) return;
    slept_ = false;
    allowed_ = Clock::now() - wait_began_ > patience_ ? patience_ / kBrief : patience_;
  }

  // This poll has found nothing. Returns true when it is time to sleep; polling begins anew after
  // that.
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
  static constexpr int kEagerPolls = 64;  // polls without a yield: a few microseconds
  static constexpr int kBrief = 16;       // brief polling lasts a sixteenth of the patience
  // A yield that takes longer went to a thread that computes and not to another one that polls.
  static constexpr Clock::duration kTaken = microseconds(200);

  Clock::duration patience_;
  Clock::duration allowed_;  // how long to poll at present
  TimePoint polling_since_;  // the first poll of this wait, or the first since it slept
  TimePoint wait_began_;
  bool slept_ = false;  // in this wait
  int polls_ = 0;
};

}  // namespace lamina
