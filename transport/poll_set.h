// An epoll set: it joins a fabric's sockets and wake-ups into the one descriptor on which the
// fabric's owner sleeps.
#pragma once

#include <cstdint>
#include <span>

#include "transport/posix.h"

namespace lamina {

// Level-triggered: fd() is readable as long as a descriptor in the set has one of the events that
// it was added for. Borrows the descriptors: each must be removed before it is closed. Thread:
// owner.
class PollSet {
 public:
  PollSet();  // ends the process if it is out of descriptors: no fabric works without one

  int fd() const { return epoll_.get(); }

  // Adds `fd`, or changes what it waits for. `events` are EPOLLIN, EPOLLOUT and so on; `owner` is
  // what Ready returns for this descriptor. Both end the process if the kernel has no memory left
  // for the entry. REQUIRES: `fd` is not in the set (Add), or is (Modify, Remove).
  void Add(int fd, uint32_t events, void* owner);
  void Modify(int fd, uint32_t events, void* owner);
  void Remove(int fd);

  // Fills `owners` with the owners of descriptors that have an event now and returns how many. One
  // system call, which does not wait. It may leave some to the next call.
  size_t Ready(std::span<void*> owners);

 private:
  UniqueFd epoll_;
};

// The place of one descriptor in a poll set, which its destructor gives up. The set's Ready returns
// null for it. REQUIRES at destruction: the descriptor is still open.
class PollEntry {
 public:
  PollEntry(PollSet& set, int fd, uint32_t events) : set_(set), fd_(fd) {
    set_.Add(fd, events, nullptr);
  }
  ~PollEntry() { set_.Remove(fd_); }
  PollEntry(const PollEntry&) = delete;
  PollEntry& operator=(const PollEntry&) = delete;

 private:
  PollSet& set_;
  const int fd_;
};

}  // namespace lamina
