#include "base/device_timeline.h"

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>

namespace lamina {
namespace {

// A timer wakes a thread some tens of microseconds late; that much earlier it is asked for. What is left is not worth a yield: a program
// that computes beside us would keep the core for milliseconds.
constexpr auto kWakeUp = microseconds(60);

}  // namespace

void DeviceTimeline::Run(Clock::duration cost) { SleepUntil(Book(Clock::now(), cost)); }

void SleepUntil(TimePoint at) {
  [[maybe_unused]] thread_local const int exact_timers = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // else the kernel adds 50 us
  if (Clock::now() < at - kWakeUp) {
    const auto wake = (at - kWakeUp).time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wake);
    const timespec until{.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(wake - seconds).count()};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) continue;  // steady_clock is that clock
  }
  while (Clock::now() < at) __builtin_ia32_pause();
}

}  // namespace lamina
