#include "base/device_timeline.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <cerrno>

namespace lamina {
namespace {

// A timer wakes a thread some tens of microseconds late; that much earlier it is asked for.
constexpr auto kWakeUp = microseconds(60);

}  // namespace

void DeviceTimeline::Run(Clock::duration cost) { SleepUntil(Book(Clock::now(), cost)); }

void SleepUntil(TimePoint at) {
  thread_local const bool exact_timers = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) == 0;  // else the kernel adds 50 us
  static_cast<void>(exact_timers);
  if (Clock::now() < at - kWakeUp) {
    const auto wake = (at - kWakeUp).time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wake);
    const timespec until{.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(wake - seconds).count()};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) continue;  // steady_clock is that clock
  }
  while (Clock::now() < at) sched_yield();
}

}  // namespace lamina
