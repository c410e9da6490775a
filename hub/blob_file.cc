#include "hub/blob_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/printable.h"
#include "base/units.h"

namespace lamina {
namespace {

constexpr mode_t kFileMode = 0666;  // as the umask lets it
constexpr auto kLockLook = milliseconds(100);

Status DiskError(const std::string& path, const char* call, int error) {
  const std::string what = path + ": " + ErrnoText(call, error);
  if (error == ENOSPC || error == EDQUOT)
    return OutOfSpace(what + "; make room, or set HF_HOME to a folder on a larger disk");
  return InvalidArgument(what + "; HF_HOME names another folder for the cache of models");
}

}  // namespace

Result<FileLock> FileLock::Take(const std::string& path, Deadline deadline) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode));
  if (!fd.valid()) return DiskError(path, "open", errno);
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return DiskError(path, "flock", errno);
    if (deadline.Passed())
      return TimedOut(path +
                      " is locked: another process downloads this file; try again when it "
                      "has ended");
    std::this_thread::sleep_for(kLockLook);
  }
  return FileLock(std::move(fd));
}

Result<std::unique_ptr<BlobFile>> BlobFile::Open(const std::string& path, const HubFile& file) {
  std::unique_ptr<BlobFile> blob(new BlobFile(path, file));
  const std::string incomplete = path + ".incomplete";
  blob->fd_.Reset(
      open(incomplete.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kFileMode));
  if (!blob->fd_.valid()) return DiskError(incomplete, "open", errno);
  LAMINA_RETURN_IF_ERROR(blob->ReadExisting());
  return blob;
}

Status BlobFile::ReadExisting() {
  LAMINA_ASSIGN_OR_RETURN(ContentHash hash, ContentHash::Start(file_));
  hash_ = std::make_unique<ContentHash>(std::move(hash));
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0) return DiskError(path_, "fstat", errno);
  if (!S_ISREG(status.st_mode))
    return InvalidArgument(path_ + ".incomplete is no regular file; remove it");
  if (status.st_size > file_.size) return Restart();
  std::vector<char> buffer(size_t{1} << 20);
  while (num_bytes_ < status.st_size) {
    const ssize_t got = pread(fd_.get(), buffer.data(), buffer.size(), num_bytes_);
    if (got < 0) return DiskError(path_, "pread", errno);
    if (got == 0) break;
    hash_->Add({buffer.data(), static_cast<size_t>(got)});
    num_bytes_ += got;
  }
  return OkStatus();
}

Status BlobFile::Append(std::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) > file_.size - num_bytes_)
    return Corrupt(fmt::format("{}: the server sends more than the {} bytes that the file has",
                               Printable(file_.path), file_.size));
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_.get(), bytes.data(), bytes.size(), num_bytes_);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return DiskError(path_, "pwrite", written == 0 ? ENOSPC : errno);
    hash_->Add(bytes.substr(0, static_cast<size_t>(written)));
    num_bytes_ += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return OkStatus();
}

Status BlobFile::Restart() {
  if (ftruncate(fd_.get(), 0) != 0) return DiskError(path_, "ftruncate", errno);
  LAMINA_ASSIGN_OR_RETURN(ContentHash hash, ContentHash::Start(file_));
  *hash_ = std::move(hash);
  num_bytes_ = 0;
  return OkStatus();
}

Status BlobFile::Finish() {
  const std::string incomplete = path_ + ".incomplete";
  if (hash_->Finish() != file_.hash()) {
    unlink(incomplete.c_str());
    return Corrupt(Printable(file_.path) + ": the bytes that came do not have the checksum " +
                   file_.hash() + " that the hub names; they were deleted");
  }
  // The name must not be there after a power failure without the bytes.
  if (fdatasync(fd_.get()) != 0) return DiskError(incomplete, "fdatasync", errno);
  if (std::rename(incomplete.c_str(), path_.c_str()) != 0) return DiskError(path_, "rename", errno);
  return OkStatus();
}

Status MakeFolders(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? DiskError(folder, "mkdir", error.value()) : OkStatus();
}

Status CheckDiskSpace(const std::string& folder, int64_t bytes) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return OkStatus();  // writing will say what is wrong
  const auto block = static_cast<int64_t>(disk.f_frsize);
  const auto free_bytes = static_cast<int64_t>(disk.f_bavail) * block;
  if (bytes <= free_bytes) return OkStatus();
  return OutOfSpace(fmt::format(
      "{} are to be downloaded, and the disk of {} has room for {}; make room, or set HF_HOME to a "
      "folder on a larger disk",
      FormatGigabytes(bytes), folder, FormatGigabytes(free_bytes)));
}

}  // namespace lamina
