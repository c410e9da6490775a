#include "transport/rdma_host.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "transport/mapping.h"
#include "transport/posix.h"

namespace lamina {

bool HasRdmaDevice() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/dev/infiniband", error);
  if (error) return false;
  return std::any_of(begin(devices), end(devices), [](const auto& entry) {
    return entry.path().filename().string().starts_with("uverbs");
  });
}

std::string UcxTrustedDevices() {
  const char* const devices = std::getenv(kUcxTrustedDevices);
  return devices == nullptr ? "" : devices;
}

Status CheckCanLock(size_t bytes) {
  LAMINA_ASSIGN_OR_RETURN(const Mapping probe, Mapping::Anonymous(bytes));
  // The mapping's destructor unlocks the memory again.
  if (mlock(probe.bytes().data(), probe.bytes().size()) == 0) return OkStatus();
  const int error = errno;
  const std::string advice = LockedMemoryAdvice();
  return OutOfSpace(advice.empty()
                        ? ErrnoText("locking " + std::to_string(bytes) + " bytes: mlock", error)
                        : advice);
}

std::string LockedMemoryAdvice() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return "this process may lock " + std::to_string(limit.rlim_cur) +
         " bytes of memory (RLIMIT_MEMLOCK): raise that with `ulimit -l unlimited` before it "
         "starts, in containers with "
         "`--ulimit memlock=-1`, under systemd with LimitMEMLOCK=infinity";
}

}  // namespace lamina
