// Limits how often a warning is logged. For what peers can cause thousands of times a second before
// they have shown who they are: it must not fill the log.
#pragma once

#include <atomic>

#include "base/clock.h"

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

}  // namespace lamina
