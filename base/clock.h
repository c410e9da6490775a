// Monotonic time, and deadlines. Functions that wait for another process take a Deadline, so that a
// peer that hangs cannot block its caller for ever.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

namespace lamina {

// The clock of the process: monotonic, and that of std::chrono::steady_clock unless a test has
// replaced what it reads.
struct Clock {
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    const Source source = source_.load(std::memory_order_relaxed);
    return source == nullptr ? std::chrono::steady_clock::now() : source();
  }

  // From now on the clock reads `source`, and the system's clock again if that is null. Waits of
  // the system (poll, condition variables) go on to take real time, so only code that never waits
  // can run in virtual time. Thread: while no other one reads the clock.
  using Source = time_point (*)() noexcept;
  static void Read(Source source) { source_.store(source); }

 private:
  static inline std::atomic<Source> source_ = nullptr;
};

using TimePoint = Clock::time_point;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A point in time after which a wait gives up. Value type.
class Deadline {
 public:
  static Deadline After(Clock::duration duration) { return Deadline(Clock::now() + duration); }
  explicit Deadline(TimePoint at) : at_(at) {}

  // One that has also passed as soon as `cancelled` is true, which it borrows. Nothing wakes a wait
  // then: those of Fabric::Connect look again after 100 ms at the latest.
  Deadline Unless(const std::atomic<bool>& cancelled) const {
    Deadline deadline(at_);
    deadline.cancelled_ = &cancelled;
    return deadline;
  }
  // The earlier of this one and `at`, cancelled as this one.
  Deadline NoLaterThan(TimePoint at) const {
    Deadline deadline(*this);
    deadline.at_ = std::min(at_, at);
    return deadline;
  }

  TimePoint at() const { return at_; }
  bool CanBeCancelled() const { return cancelled_ != nullptr; }
  bool Passed() const { return (CanBeCancelled() && cancelled_->load()) || Clock::now() >= at_; }

  // Time left until at(), never negative.
  Clock::duration Remaining() const {
    return std::max(Clock::duration::zero(), at_ - Clock::now());
  }

  // Time left for poll(2) and friends: rounded up to a whole millisecond, never negative. What is
  // further away than an int counts, such as TimePoint::max(), is its largest value, 24 days.
  int RemainingMs() const {
    constexpr milliseconds::rep kLongest = std::numeric_limits<int>::max();
    return static_cast<int>(
        std::min(std::chrono::ceil<milliseconds>(Remaining()).count(), kLongest));
  }

 private:
  TimePoint at_;
  const std::atomic<bool>* cancelled_ = nullptr;  // null: never
};

inline double SecondsSince(TimePoint start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace lamina
