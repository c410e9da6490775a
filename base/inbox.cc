#include "base/inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/descriptors.h"

namespace lamina {

WakeFd::WakeFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  // The program has just started and cannot do anything without descriptors.
  LAMINA_CHECK(fd_ >= 0, "eventfd: {}", std::strerror(errno));
}

Result<WakeFd> WakeFd::Create() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) return DescriptorError("eventfd", errno);
  return WakeFd(fd);
}

WakeFd::~WakeFd() {
  if (fd_ >= 0) close(fd_);
}

void WakeFd::Signal() {
  const uint64_t one = 1;
  // EAGAIN means that the counter is full, and so that the descriptor is readable already.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

void WakeFd::Clear() {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
}

}  // namespace lamina
