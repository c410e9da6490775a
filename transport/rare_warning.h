// For warnings of what strangers cause: thousands of them a second must not fill the log.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace lamina {

// Thread: any.
class RareWarning {
 public:
  // True once a minute at most.
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
