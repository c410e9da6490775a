// What the fabrics need from the operating system: descriptors that close themselves, waiting for
// descriptors until a deadline, and the texts of errors.
#pragma once

#include <poll.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace lamina {

// Owns a file descriptor and closes it. Can be moved; -1 stands for none.
class UniqueFd {
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  ~UniqueFd() { Reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1);

 private:
  int fd_;
};

// "connect: Connection refused" for the call "connect". The first form takes errno, which the
// evaluation of its argument must not change.
std::string ErrnoText(std::string_view call);
std::string ErrnoText(std::string_view call, int error);

// Waits until `fd` has one of the poll(2) `events`, an error or a hang-up, or until `deadline`.
// Returns true unless the deadline came first.
bool WaitForFd(int fd, short events, Deadline deadline);

// Waits until one of `fds` has one of its events or `deadline`. The deadline is kept to the
// nanosecond as far as the kernel's timers allow, where poll(2) counts milliseconds. A signal may
// end the wait early.
void WaitForAnyFd(std::span<pollfd> fds, Deadline deadline);

// How long to wait before the next attempt to reach a peer that is not there yet.
inline constexpr auto kRetryPause = milliseconds(5);
// Sleeps for kRetryPause, but not beyond `deadline`.
void PauseBeforeRetry(Deadline deadline);

}  // namespace lamina
