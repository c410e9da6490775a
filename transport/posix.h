// What the fabrics need from the operating system: descriptors that close themselves, waiting,
// texts of errors.
#pragma once

#include <poll.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace lamina {

// Owns a file descriptor. Value type that can be moved.
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

// "connect: Connection refused", from errno at the time of the call; take care that the argument's
// making does not change it.
std::string ErrnoText(std::string_view call);
std::string ErrnoText(std::string_view call, int error);

// Waits until `fd` has one of the poll(2) `events` (an error or hang-up counts) or `deadline`; says
// whether it has.
bool WaitForFd(int fd, short events, Deadline deadline);

// Waits until one of them has something or `deadline`, to the nanosecond; a signal may end it
// early.
void WaitForAnyFd(std::span<pollfd> fds, Deadline deadline);

// Sleeps before the next try to reach a peer that is not there yet: short, and not beyond
// `deadline`.
void PauseBeforeRetry(Deadline deadline);

}  // namespace lamina
