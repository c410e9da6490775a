#include "transport/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "transport/posix.h"

namespace lamina {
namespace {

Status CheckOwnership(const struct stat& file, const std::string& path) {
  if (!S_ISREG(file.st_mode)) {
    return InvalidArgument("secret file " + path + " is not a regular file; make one with `" + MakeSecretCommand(path) + "`");
  }
  if (file.st_uid != geteuid() && file.st_uid != 0) {
    return InvalidArgument("secret file " + path + " belongs to user " + std::to_string(file.st_uid) +
                           ", who could change it: it must belong to this user or root; use `chown " + std::to_string(geteuid()) + " " +
                           path + "`");
  }
  if ((file.st_mode & 077) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof(mode), "%03o", static_cast<unsigned>(file.st_mode & 0777));
    return InvalidArgument("secret file " + path + " has mode " + mode + ", so others than its owner have rights to it; use `chmod 600 " +
                           path + "`");
  }
  return OkStatus();
}

// Up to one byte more than a secret and its newline may have.
Result<std::string> ReadUpToLimit(int file, const std::string& path) {
  std::string bytes(kMaxSecretBytes + 2, '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = read(file, bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return InvalidArgument("secret file " + path + ": " + ErrnoText("read"));
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace

std::string MakeSecretCommand(const std::string& path) { return "(umask 077 && openssl rand -hex 32 > " + path + ")"; }

Result<std::string> ReadSecretFile(const std::string& path) {
  if (path.empty()) return std::string();
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not hold us up
  if (!file.valid()) {
    const std::string message =
        "secret file " + path + " cannot be opened, " + ErrnoText("open") + "; copy the cluster's secret there, or make one with `";
    return Status(errno == ENOENT ? StatusCode::kNotFound : StatusCode::kInvalidArgument, message + MakeSecretCommand(path) + "`");
  }
  struct stat about {};
  if (fstat(file.get(), &about) != 0) return InvalidArgument("secret file " + path + ": " + ErrnoText("fstat"));
  LAMINA_RETURN_IF_ERROR(CheckOwnership(about, path));
  LAMINA_ASSIGN_OR_RETURN(std::string secret, ReadUpToLimit(file.get(), path));
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.size() < kMinSecretBytes || secret.size() > kMaxSecretBytes) {
    const std::string size =
        secret.size() > kMaxSecretBytes ? "more than " + std::to_string(kMaxSecretBytes) : std::to_string(secret.size());
    return InvalidArgument("secret file " + path + " holds " + size + " bytes, expected " + std::to_string(kMinSecretBytes) + " to " +
                           std::to_string(kMaxSecretBytes) + "; make a good one with `" + MakeSecretCommand(path) + "`");
  }
  return secret;
}

}  // namespace lamina
