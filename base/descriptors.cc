#include "base/descriptors.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace lamina {
namespace {

constexpr size_t kReservedPart = 4;  // one in four descriptors is reserved

}  // namespace

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  // Raising the soft limit is always allowed. If it fails all the same, the program goes on with
  // the limit that it has.
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

size_t DescriptorLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

bool DescriptorsAreScarce() {
  // A new descriptor gets the lowest number that is free, and so tells how many are in use.
  const int fd = eventfd(0, EFD_CLOEXEC);
  if (fd < 0) return true;
  close(fd);
  const size_t limit = DescriptorLimit();
  return static_cast<size_t>(fd) >= limit - limit / kReservedPart;
}

Status DescriptorError(const char* call, int error) {
  std::string message = std::string(call) + ": " + std::strerror(error);
  if (error == EMFILE)
    message += "; this process may have " + std::to_string(DescriptorLimit()) +
               " files open, raise the limit (ulimit -n)";
  if (error == ENFILE)
    message += "; this machine has as many files open as it can, raise the sysctl fs.file-max";
  return OutOfSpace(std::move(message));
}

Status CheckDescriptorsLeft(size_t count) {
  // Opens that many for a moment: nothing tells how many are left.
  std::vector<int> taken;
  Status status;
  while (taken.size() < count && status.ok()) {
    const int fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0) {
      status = DescriptorError("eventfd", errno);
    } else {
      taken.push_back(fd);
    }
  }
  for (const int fd : taken) close(fd);
  return status;
}

}  // namespace lamina
