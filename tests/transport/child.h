// A process of its own for the other end of a connection.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <string>

#include "tests/transport/fabric_pair.h"
#include "transport/posix.h"

namespace lamina {

// A process forked at once, before this one opens a fabric: what a fabric's library does in threads
// of its own does not survive a fork. Runs `body` with the address that Start gives it, and ends
// with 0 if that returns true. Killed by the destructor at the latest.
class Child {
 public:
  explicit Child(const std::function<bool(const std::string& address)>& body) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    read_end_.Reset(ends[0]);
    write_end_.Reset(ends[1]);
    pid_ = fork();
    if (pid_ != 0) return;
    write_end_.Reset();
    std::array<char, 256> address;
    const ssize_t got = read(read_end_.get(), address.data(), address.size());
    _exit(got > 0 && body(std::string(address.data(), static_cast<size_t>(got))) ? 0 : 1);
  }
  ~Child() {
    if (pid_ > 0) Kill();
  }

  void Start(const std::string& address) {
    ASSERT_EQ(write(write_end_.get(), address.data(), address.size()),
              static_cast<ssize_t>(address.size()));
  }

  void Kill() {
    kill(pid_, SIGKILL);
    Wait();
  }

  pid_t pid() const { return pid_; }

  int Wait() {
    int status = -1;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  UniqueFd read_end_;
  UniqueFd write_end_;
  pid_t pid_ = -1;
};

// For the body of a Child; returns false if nobody kills it.
inline bool WaitToBeKilled() {
  const Deadline deadline = Deadline::After(kPatience);
  while (!deadline.Passed()) usleep(100'000);
  return false;
}

}  // namespace lamina
