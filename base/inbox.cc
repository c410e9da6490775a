#include "base/inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace lamina {

WakeFd::WakeFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) {  // only when the process is out of descriptors: nothing can run then
    std::perror("lamina: eventfd");
    std::abort();
  }
}

WakeFd::~WakeFd() { close(fd_); }

void WakeFd::Signal() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));  // EAGAIN means it is signalled already
}

void WakeFd::Clear() {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
}

}  // namespace lamina
