#include "transport/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace lamina {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

Result<UniqueFd> CreateSealedMemory(uint64_t bytes) {
  UniqueFd fd(memfd_create("lamina-window", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return OutOfSpace(ErrnoText("memfd_create"));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return OutOfSpace(ErrnoText("shared memory of " + std::to_string(bytes) + " bytes: ftruncate"));
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return InternalError(ErrnoText("sealing a memfd"));
  return fd;
}

Status CheckSealedMemory(int fd, uint64_t control_bytes, uint64_t window_bytes) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return PeerLost(ErrnoText("fstat of the peer's memory"));
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return PeerLost("the peer's memory is not sealed shared memory");
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size < control_bytes || window_bytes > size - control_bytes) {
    return PeerLost("the peer's memory has " + std::to_string(size) +
                    " bytes, too few for its window of " + std::to_string(window_bytes));
  }
  return OkStatus();
}

Result<UniqueFd> OpenSealedMemory(int pid, int descriptor, uint64_t control_bytes,
                                  uint64_t window_bytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor);
  // Looked at before it is opened: opening some devices does something.
  const UniqueFd found(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!found.valid()) return PeerLost(ErrnoText(path));
  struct stat info {};
  if (fstat(found.get(), &info) != 0) return PeerLost(ErrnoText(path));
  if (!S_ISREG(info.st_mode)) return PeerLost(path + " is no memory");
  const std::string again = "/proc/self/fd/" + std::to_string(found.get());
  UniqueFd fd(open(again.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return PeerLost(ErrnoText(path));
  LAMINA_RETURN_IF_ERROR(CheckSealedMemory(fd.get(), control_bytes, window_bytes));
  return fd;
}

}  // namespace lamina
