// An epoll set: the one descriptor on which a fabric's owner sleeps.
#pragma once

#include <cstdint>
#include <span>

#include "transport/posix.h"

namespace lamina {

// Level-triggered: fd() is readable as long as one of the descriptors in the set has what it was
// added for. Thread: owner.
class PollSet {
 public:
  PollSet();  // ends the process if it is out of descriptors, as nothing can run then

  int fd() const { return epoll_.get(); }

  // `events` are EPOLLIN and friends; `owner` is what Ready returns for this descriptor.
  void Add(int fd, uint32_t events, void* owner);
  void Modify(int fd, uint32_t events, void* owner);
  void Remove(int fd);

  // Owners of descriptors that have something now; returns how many. Does not wait.
  size_t Ready(std::span<void*> owners);

 private:
  UniqueFd epoll_;
};

}  // namespace lamina
