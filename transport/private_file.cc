#include "transport/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "transport/posix.h"

namespace lamina {
namespace {

Status CheckOwnership(const struct stat& about, const PrivateFile& file) {
  const std::string name = file.what + " " + file.path;
  if (!S_ISREG(about.st_mode))
    return InvalidArgument(name + " is not a regular file; " + file.remedy);
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    return InvalidArgument(
        name + " belongs to user " + std::to_string(about.st_uid) +
        ", who could change it: it must belong to this user or root; use `chown " +
        std::to_string(geteuid()) + " " + file.path + "`");
  }
  if ((about.st_mode & 077) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof(mode), "%03o", static_cast<unsigned>(about.st_mode & 0777));
    return InvalidArgument(name + " has mode " + mode +
                           ", so others than its owner have rights to it; use `chmod 600 " +
                           file.path + "`");
  }
  return OkStatus();
}

}  // namespace

Result<std::string> ReadPrivateFile(const PrivateFile& file) {
  // O_NONBLOCK: opening a named pipe would wait for its writer. The checks use the open file, not
  // the path, so that nobody can swap it in between.
  const UniqueFd fd(open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const StatusCode code = errno == ENOENT ? StatusCode::kNotFound : StatusCode::kInvalidArgument;
    return Status(code, file.what + " " + file.path + " cannot be opened, " + ErrnoText("open") +
                            "; " + file.remedy);
  }
  struct stat about {};
  if (fstat(fd.get(), &about) != 0)
    return InvalidArgument(file.what + " " + file.path + ": " + ErrnoText("fstat"));
  LAMINA_RETURN_IF_ERROR(CheckOwnership(about, file));
  std::string bytes(file.limit_bytes, '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = read(fd.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return InvalidArgument(file.what + " " + file.path + ": " + ErrnoText("read"));
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace lamina
