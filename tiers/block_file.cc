#include "tiers/block_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace lamina {
namespace {

// Opens it past the system's cache, or through it where the file system knows no other way.
int OpenDirect(const std::string& path, int flags, bool& is_direct) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC | O_DIRECT, 0600);
  is_direct = fd >= 0 || errno != EINVAL;
  return is_direct ? fd : open(path.c_str(), flags | O_CLOEXEC, 0600);
}

std::string Reason() { return std::strerror(errno); }

}  // namespace

Result<std::unique_ptr<BlockFile>> BlockFile::Create(const std::string& folder,
                                                     const std::vector<int64_t>& block_bytes) {
  bool is_direct = true;
  const int fd = OpenDirect(folder, O_TMPFILE | O_RDWR, is_direct);
  if (fd < 0)
    return InvalidArgument("a file for blocks cannot be made in " + folder + ": " + Reason());
  std::vector<Place> places;
  int64_t size = 0;
  for (const int64_t bytes : block_bytes) {
    places.push_back({size, (bytes + kAlignment - 1) / kAlignment * kAlignment});
    size += places.back().bytes;
  }
  std::unique_ptr<BlockFile> file(
      new BlockFile("the file for blocks in " + folder, fd, is_direct, std::move(places)));
  if (const int error = size > 0 ? posix_fallocate(fd, 0, size) : 0; error != 0) {
    std::error_code ignored;
    const auto free = std::filesystem::space(folder, ignored).available;
    return OutOfSpace("a file of " + std::to_string(size) + " bytes in " + folder + ": " +
                      std::strerror(error) + "; the disk has " + std::to_string(free) +
                      " bytes left");
  }
  return file;
}

Result<std::unique_ptr<BlockFile>> BlockFile::OpenPlaces(const std::string& path,
                                                         const std::string& name,
                                                         std::vector<Place> places) {
  bool is_direct = true;
  const int fd = OpenDirect(path, O_RDONLY, is_direct);
  if (fd < 0) return InvalidArgument(name + " cannot be opened: " + Reason());
  std::unique_ptr<BlockFile> file(new BlockFile(name, fd, is_direct, std::move(places)));
  const off_t size = lseek(fd, 0, SEEK_END);
  for (const auto& [begin, bytes] : file->places_) {
    if (begin + bytes <= size) continue;
    return InvalidArgument(name + " has " + std::to_string(size) +
                           " bytes, where a block ends at " + std::to_string(begin + bytes));
  }
  return file;
}

BlockFile::BlockFile(std::string where, int fd, bool is_direct, std::vector<Place> places)
    : where_(std::move(where)), fd_(fd), is_direct_(is_direct), places_(std::move(places)) {}

BlockFile::~BlockFile() { close(fd_); }

template <typename Call>
Status BlockFile::Transfer(const char* what, int64_t size, const Call& call) const {
  for (int64_t done = 0; done < size;) {
    const ssize_t n = call(done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return InternalError(std::string(what) + " of " + where_ + " failed: " + Reason());
    if (n == 0) return InternalError(where_ + " has become shorter than its blocks");
    done += n;
  }
  return OkStatus();
}

Status BlockFile::Write(int block, int64_t offset, const std::byte* from, int64_t size) const {
  const int64_t at = places_[static_cast<size_t>(block)].begin + offset;
  return Transfer("a write", size, [&](int64_t done) {
    return pwrite(fd_, from + done, static_cast<size_t>(size - done), at + done);
  });
}

Status BlockFile::Read(int block, int64_t offset, std::byte* to, int64_t size) const {
  const int64_t at = places_[static_cast<size_t>(block)].begin + offset;
  LAMINA_RETURN_IF_ERROR(Transfer("a read", size, [&](int64_t done) {
    return pread(fd_, to + done, static_cast<size_t>(size - done), at + done);
  }));
  if (!is_direct_) posix_fadvise(fd_, at, size, POSIX_FADV_DONTNEED);
  return OkStatus();
}

}  // namespace lamina
