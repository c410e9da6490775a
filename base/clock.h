// Monotonic time, and deadlines. Functions that wait for another process take a Deadline, so that a
// peer that hangs cannot block its caller for ever.
#pragma once

#include <algorithm>
#include <chrono>

namespace lamina {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A point in time after which a wait gives up. Value type.
class Deadline {
 public:
  static Deadline After(Clock::duration duration) { return Deadline(Clock::now() + duration); }
  explicit Deadline(TimePoint at) : at_(at) {}

  TimePoint at() const { return at_; }
  bool Passed() const { return Clock::now() >= at_; }

  // Time left, never negative.
  Clock::duration Remaining() const {
    return std::max(Clock::duration::zero(), at_ - Clock::now());
  }

  // Time left for poll(2) and friends: rounded up to a whole millisecond, never negative.
  int RemainingMs() const {
    return static_cast<int>(std::chrono::ceil<milliseconds>(Remaining()).count());
  }

 private:
  TimePoint at_;
};

inline double SecondsSince(TimePoint start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace lamina
