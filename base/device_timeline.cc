#include "base/device_timeline.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

namespace lamina {
namespace {

// Estimates how late timers wake this thread: some microseconds, or tens of them on a busy machine.
// Timers are set that much too early, and the rest of the time the clock is polled. While polling,
// the core is not yielded, because a program that computes beside us would keep it for
// milliseconds. Long polling, on the other hand, would take the core from other nodes. So the lead
// follows the third quartile of the lateness: a step of +3 after a timer that was later, of -1
// after one that was not, balances where three in four are not.
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
  // By default the kernel may delay timers by 50 us to wake up less often.
  [[maybe_unused]] thread_local const int exact_timers =
      prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  thread_local WakeUp wake_up;
  const TimePoint asked = at - wake_up.lead();
  if (Clock::now() < asked) {
    const auto wake = asked.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wake);
    const timespec until{.tv_sec = seconds.count(),
                         .tv_nsec = std::chrono::nanoseconds(wake - seconds).count()};
    // CLOCK_MONOTONIC is the clock of steady_clock.
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) continue;
    wake_up.Observe(Clock::now() - asked);
  }
  while (Clock::now() < at) __builtin_ia32_pause();
}

}  // namespace lamina
