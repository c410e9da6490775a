#include "transport/poll_set.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace lamina {
namespace {

// Descriptors reported per call. The next call finds the others: the kernel rotates what it
// reports.
constexpr size_t kBatch = 64;

void Control(int epoll, int operation, int fd, uint32_t events, void* owner) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = owner;
  // Fails only if the kernel is out of memory or of epoll watches, or by a programmer's error.
  if (epoll_ctl(epoll, operation, fd, &event) != 0) {
    std::perror("lamina: epoll_ctl");
    std::abort();
  }
}

}  // namespace

PollSet::PollSet() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.valid()) {
    std::perror("lamina: epoll_create1");
    std::abort();
  }
}

void PollSet::Add(int fd, uint32_t events, void* owner) {
  Control(epoll_.get(), EPOLL_CTL_ADD, fd, events, owner);
}
void PollSet::Modify(int fd, uint32_t events, void* owner) {
  Control(epoll_.get(), EPOLL_CTL_MOD, fd, events, owner);
}
void PollSet::Remove(int fd) { Control(epoll_.get(), EPOLL_CTL_DEL, fd, 0, nullptr); }

size_t PollSet::Ready(std::span<void*> owners) {
  std::array<epoll_event, kBatch> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(std::min(kBatch, owners.size())), 0);
  for (int i = 0; i < count; ++i)
    owners[static_cast<size_t>(i)] = events[static_cast<size_t>(i)].data.ptr;
  return static_cast<size_t>(std::max(count, 0));
}

}  // namespace lamina
