#include "quantize/unfinished.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace lamina {
namespace {

namespace fs = std::filesystem;

Status Sync(const fs::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool ok = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return ok ? OkStatus()
            : InvalidArgument(path.string() + " cannot be written: " + std::strerror(error));
}

}  // namespace

Unfinished::Unfinished(fs::path path) : path_(std::move(path)) { Remove(); }

Unfinished::~Unfinished() { Remove(); }

Status Unfinished::Finish(const fs::path& name) const {
  std::error_code error;
  if (fs::is_directory(path_, error)) {
    for (fs::directory_iterator file(path_, error), end; !error && file != end;
         file.increment(error)) {
      LAMINA_RETURN_IF_ERROR(Sync(file->path()));
    }
  }
  LAMINA_RETURN_IF_ERROR(Sync(path_));
  fs::rename(path_, name, error);
  return error ? InvalidArgument(name.string() + " cannot be made: " + error.message())
               : OkStatus();
}

void Unfinished::Remove() const {
  std::error_code error;
  fs::remove_all(path_, error);
}

}  // namespace lamina
