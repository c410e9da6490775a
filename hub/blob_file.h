// A file of the cache while it is downloaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "hub/content_hash.h"
#include "hub/hub_answers.h"
#include "transport/posix.h"

namespace lamina {

// Excludes other processes, those of Hugging Face's tools among them, from what a lock file stands
// for. Goes with the object, or with the process. Value type.
class FileLock {
 public:
  // Waits until nobody else has it. kInvalidArgument if the file cannot be opened; kTimeout if the
  // deadline has passed.
  static Result<FileLock> Take(const std::string& path, Deadline deadline);

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// PATH.incomplete, which becomes PATH when all bytes are there and are the right ones. What an
// earlier process left of it is gone on with. Thread: one owner. REQUIRES: the caller holds the
// blob's lock.
class BlobFile {
 public:
  // Reads what is there already. kInvalidArgument if it cannot be opened or read.
  static Result<std::unique_ptr<BlobFile>> Open(const std::string& path, const HubFile& file);

  int64_t num_bytes() const { return num_bytes_; }
  bool is_complete() const { return num_bytes_ == file_.size; }

  // kCorrupt if the file would become longer than it is to be; kOutOfSpace if the disk is full.
  Status Append(std::string_view bytes);
  // Forgets all bytes.
  Status Restart();
  // Gives the file its name. kCorrupt if the bytes have another hash than the hub named; they are
  // deleted then. REQUIRES: is_complete().
  Status Finish();

 private:
  BlobFile(std::string path, HubFile file) : path_(std::move(path)), file_(std::move(file)) {}
  Status ReadExisting();

  const std::string path_;
  const HubFile file_;
  UniqueFd fd_;
  std::unique_ptr<ContentHash> hash_;
  int64_t num_bytes_ = 0;
};

// Makes the folder and those above it. kOutOfSpace or kInvalidArgument with the path.
Status MakeFolders(const std::string& folder);

// kOutOfSpace if the disk of an existing folder has less room than `bytes`.
Status CheckDiskSpace(const std::string& folder, int64_t bytes);

}  // namespace lamina
