#include "base/device_timeline.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

namespace lamina {
namespace {

// A timer wakes a thread some microseconds late, tens of them on a busy machine; that much earlier
// it is asked for. What is left is not worth a yield: a program that computes beside us would keep
// the core for milliseconds. But whoever looks at the clock for long takes the core from other
// nodes, so this follows how late timers are, three in four of them.
class WakeUp {
 public:
  Clock::duration lead() const { return lead_; }
  void Observe(Clock::duration late) {
    lead_ = std::clamp<Clock::duration>(lead_ + (late > lead_ ? 3 : -1) * kStep, kLeast, kMost);
  }

 private:
  static constexpr Clock::duration kStep = std::chrono::nanoseconds(500);
  static constexpr Clock::duration kLeast = microseconds(2);
  static constexpr Clock::duration kMost = microseconds(60);

  Clock::duration lead_ = microseconds(20);
};

}  // namespace

void DeviceTimeline::Run(Clock::duration cost) { SleepUntil(Book(Clock::now(), cost)); }

void SleepUntil(TimePoint at) {
  // Else the kernel adds 50 us.
  [[maybe_unused]] thread_local const int exact_timers =
      prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  thread_local WakeUp wake_up;
  const TimePoint asked = at - wake_up.lead();
  if (Clock::now() < asked) {
    const auto wake = asked.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wake);
    const timespec until{.tv_sec = seconds.count(),
                         .tv_nsec = std::chrono::nanoseconds(wake - seconds).count()};
    // steady_clock is that clock.
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) continue;
    wake_up.Observe(Clock::now() - asked);
  }
  while (Clock::now() < at) __builtin_ia32_pause();
}

}  // namespace lamina
