#include "base/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lamina {
namespace {

std::string KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  return "a device";
}

// Why it cannot be read, by errno.
Status Unreadable(const std::string& path) {
  const bool absent = errno == ENOENT || errno == ENOTDIR;
  return Status(absent ? StatusCode::kNotFound : StatusCode::kInvalidArgument,
                "cannot read " + path + ": " + std::strerror(errno));
}

Result<std::string> ReadAll(int fd, const std::string& path, size_t num_bytes) {
  std::string text(num_bytes, '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = read(fd, text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Unreadable(path);
    if (got == 0) break;  // the file has become shorter since fstat
    filled += static_cast<size_t>(got);
  }
  text.resize(filled);
  return text;
}

}  // namespace

Result<OpenedFile> OpenRegularFile(const std::string& path) {
  // Without O_NONBLOCK, open() of a pipe would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Unreadable(path);
  struct stat about {};
  Status status;
  if (fstat(fd, &about) != 0) {
    status = Unreadable(path);
  } else if (!S_ISREG(about.st_mode)) {
    status = InvalidArgument(path + " is " + KindOf(about.st_mode) + ", expected a regular file");
  }
  if (status.ok()) return OpenedFile{fd, static_cast<size_t>(about.st_size)};
  close(fd);
  return status;
}

Result<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  LAMINA_ASSIGN_OR_RETURN(const OpenedFile file, OpenRegularFile(path));
  Result<std::string> text =
      file.num_bytes <= max_bytes
          ? ReadAll(file.fd, path, file.num_bytes)
          : InvalidArgument(fmt::format("{} has {} bytes, expected at most {}", path,
                                        file.num_bytes, max_bytes));
  close(file.fd);
  return text;
}

}  // namespace lamina
