// Limits how often a warning is logged. For what peers can cause thousands of times a second before
// they have shown who they are: it must not fill the log.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace lamina {

// One kind of warning, usually a static object. Thread: any.
class RareWarning {
 public:
  // Whether to log the warning now. Returns true at most once a minute over all threads.
  bool IsDue() {
    const Clock::rep now = Clock::now().time_since_epoch().count();
    Clock::rep next = next_.load();
    return now >= next && next_.compare_exchange_strong(
                              next, now + Clock::duration(std::chrono::minutes(1)).count());
  }

 private:
  std::atomic<Clock::rep> next_{0};
};

// For lines that each say something of their own, of which the first ones of a minute are enough.
// Thread: any.
class RareLines {
 public:
  static constexpr int kPerMinute = 20;

  // What goes behind the line that may be written now: "", or " (7 others like it were left out)".
  // nullopt: it is left out.
  std::optional<std::string> Admit(TimePoint now = Clock::now()) {
    MutexLock lock(mutex_);
    if (now >= minute_end_) {
      minute_end_ = now + std::chrono::minutes(1);
      num_written_ = 0;
    }
    if (num_written_ == kPerMinute) {
      ++num_left_out_;
      return std::nullopt;
    }
    ++num_written_;
    const uint64_t left_out = std::exchange(num_left_out_, 0);
    return left_out == 0 ? "" : " (" + std::to_string(left_out) + " others like it were left out)";
  }

 private:
  Mutex mutex_;
  TimePoint minute_end_ GUARDED_BY(mutex_){};
  int num_written_ GUARDED_BY(mutex_) = 0;        // in this minute
  uint64_t num_left_out_ GUARDED_BY(mutex_) = 0;  // since the last line that was written
};

}  // namespace lamina
