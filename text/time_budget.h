// How long a thread may work on what a client sent with what a model's files say: neither is
// trusted.
#pragma once

#include <chrono>
#include <cstddef>
#include <stop_token>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

// Time of the processor, so that a busy machine refuses nothing. Thread: the one that made it.
class TimeBudget {
 public:
  // `too_long` is the error's message when the time is over, and is borrowed.
  TimeBudget(std::chrono::nanoseconds allowed, std::string_view too_long);

  // kOutOfSpace if the time is over; kTryAgain if the thread's StopScope says that nobody waits for
  // the result.
  Status Check() const;

 private:
  Clock::time_point soonest_;     // when it can be over
  std::chrono::nanoseconds end_;  // of this thread's processor time
  std::string_view too_long_;
};

// Looks at a budget once in a while. Thread: the budget's.
class TimeWatch {
 public:
  explicit TimeWatch(const TimeBudget& budget) : budget_(budget) {}  // borrows

  // So much was done, in units of about ten nanoseconds. Returns what TimeBudget::Check said if it
  // was asked, and ok otherwise.
  Status Did(size_t work) {
    work_ += work;
    if (work_ < kWorkPerLook) return OkStatus();
    work_ = 0;
    return budget_.Check();
  }

 private:
  static constexpr size_t kWorkPerLook = 4096;  // a look takes as long as a few of these units

  const TimeBudget& budget_;
  size_t work_ = 0;
};

// The time that a tokenizer has for one text, its regular expressions, added tokens and merges
// together: two seconds and two microseconds for each byte. A usual tokenizer takes less than a
// tenth of a microsecond for a byte, and less than one for a byte of a very long word.
TimeBudget TokenizerTime(size_t text_bytes);

// While it lives, the TimeBudgets of this thread are over once `stop` is requested. One at a time
// in each thread.
class StopScope {
 public:
  explicit StopScope(std::stop_token stop);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;
};

}  // namespace lamina
