#include "transport/posix.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>

namespace lamina {

void UniqueFd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

std::string ErrnoText(std::string_view call) { return ErrnoText(call, errno); }

std::string ErrnoText(std::string_view call, int error) {
  return std::string(call) + ": " + std::generic_category().message(error);
}

bool WaitForFd(int fd, short events, Deadline deadline) {
  const Clock::duration most =
      deadline.CanBeCancelled() ? milliseconds(100) : Clock::duration(std::chrono::minutes(1));
  while (true) {
    pollfd entry{fd, events, 0};
    // At most a minute at a time: a far deadline does not fit into poll's int of milliseconds. And
    // nothing wakes poll when the deadline is cancelled. One more than the quotient, so that the
    // last part of a millisecond is slept and not polled.
    const int wait_ms =
        static_cast<int>(std::min<Clock::duration>(deadline.Remaining(), most) / milliseconds(1)) +
        1;
    if (poll(&entry, 1, deadline.Passed() ? 0 : wait_ms) > 0) return true;
    if (deadline.Passed()) return false;
  }
}

void PauseBeforeRetry(Deadline deadline) {
  std::this_thread::sleep_for(std::min<Clock::duration>(kRetryPause, deadline.Remaining()));
}

void WaitForAnyFd(std::span<pollfd> fds, Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.Remaining()).count();
  const timespec timeout{static_cast<time_t>(left / 1'000'000'000),
                         static_cast<long>(left % 1'000'000'000)};
  (void)ppoll(fds.data(), fds.size(), &timeout, nullptr);
}

}  // namespace lamina
