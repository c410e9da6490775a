#include "hub/pull.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/output_file.h"
#include "base/random_id.h"
#include "base/text_file.h"
#include "hub/blob_file.h"
#include "hub/file_selection.h"
#include "transport/posix.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

constexpr auto kLockPatience = std::chrono::hours(24);

// What content networks give one connection is often less than the line has room for.
constexpr size_t kFilesAtOnce = 4;

class Puller {
 public:
  Puller(const PullOptions& options, const HubClient& hub) : options_(options), hub_(hub) {}

  Result<PulledModel> Run();

 private:
  std::string BlobPath(const HubFile& file) const { return blobs_ + "/" + file.hash(); }
  bool HasBlob(const HubFile& file) const;
  Status MakeRoom(const std::vector<HubFile>& files);
  // Several at once. The first failure stops the others.
  Status PullAll(const std::vector<HubFile>& files);
  Status PullFile(const HubFile& file);
  Status Link(const HubFile& file) const;
  Status WriteRef() const;

  // An error once another file has failed.
  Status Advance(const HubFile& file, int64_t bytes, bool is_new_file);
  void Fail(const Status& status);

  const PullOptions& options_;
  const HubClient& hub_;
  const HubName& name_ = options_.name;
  const std::string folder_ = options_.cache.RepositoryFolder(name_);
  const std::string blobs_ = folder_ + "/blobs";
  const std::string locks_ = options_.cache.LockFolder(name_);
  PulledModel model_;  // commit and snapshot are known before there are threads
  std::atomic<int64_t> downloaded_bytes_ = 0;
  std::atomic<bool> stopped_ = false;
  Mutex mutex_;
  PullProgress progress_ GUARDED_BY(mutex_);
  Status failure_ GUARDED_BY(mutex_);
};

bool Puller::HasBlob(const HubFile& file) const {
  std::error_code error;
  const uintmax_t size = fs::file_size(BlobPath(file), error);
  return !error && size == static_cast<uintmax_t>(file.size);
}

Status Puller::MakeRoom(const std::vector<HubFile>& files) {
  for (const std::string& folder : {blobs_, locks_}) LAMINA_RETURN_IF_ERROR(MakeFolders(folder));
  int64_t missing = 0;
  for (const HubFile& file : files) {
    if (HasBlob(file)) continue;
    std::error_code error;
    const uintmax_t there = fs::file_size(BlobPath(file) + ".incomplete", error);
    missing += file.size - (error ? 0 : std::min(file.size, static_cast<int64_t>(there)));
  }
  LAMINA_RETURN_IF_ERROR(CheckDiskSpace(blobs_, missing));
  MutexLock lock(mutex_);
  progress_.num_files = files.size();
  progress_.total_bytes = model_.num_bytes;
  return OkStatus();
}

Status Puller::Advance(const HubFile& file, int64_t bytes, bool is_new_file) {
  if (stopped_) return InvalidArgument(file.path + ": stopped, as another file failed");
  MutexLock lock(mutex_);
  progress_.path = file.path;
  progress_.number += is_new_file ? 1 : 0;
  progress_.done_bytes += bytes;
  options_.on_progress(progress_);
  return OkStatus();
}

void Puller::Fail(const Status& status) {
  MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = status;
  stopped_ = true;
}

Status Puller::PullFile(const HubFile& file) {
  LAMINA_RETURN_IF_ERROR(Advance(file, 0, /*is_new_file=*/true));
  if (HasBlob(file)) return Advance(file, file.size, false);
  LAMINA_ASSIGN_OR_RETURN(const FileLock lock,
                          FileLock::Take(locks_ + "/" + file.hash() + ".lock",
                                         Deadline::After(kLockPatience).Unless(stopped_)));
  int64_t counted = 0;
  // Bytes that an earlier process left may be wrong, and are not what this one can be blamed for.
  for (bool is_first = true; !HasBlob(file); is_first = false) {
    LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<BlobFile> blob,
                            BlobFile::Open(BlobPath(file), file));
    const int64_t found = blob->num_bytes();
    const auto count = [&] {
      const int64_t bytes = blob->num_bytes() - counted;
      counted += bytes;
      return Advance(file, bytes, false);
    };
    LAMINA_RETURN_IF_ERROR(hub_.Download(name_, model_.commit, file, *blob, count));
    downloaded_bytes_ += file.size - found;
    const Status finished = blob->Finish();
    if (finished.code() == StatusCode::kCorrupt && found > 0 && is_first) continue;
    LAMINA_RETURN_IF_ERROR(finished);
  }
  return Advance(file, file.size - counted, false);
}

Status Puller::PullAll(const std::vector<HubFile>& files) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < files.size() && !stopped_; i = next++) {
      if (const Status status = PullFile(files[i]); !status.ok()) Fail(status);
    }
  };
  std::vector<std::thread> workers;
  for (size_t i = 0; i < std::min(files.size(), kFilesAtOnce); ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  MutexLock lock(mutex_);
  return failure_;
}

// A relative link, so that the cache can be moved. It is made beside its place and renamed, so that
// there is always one to be opened.
Status Puller::Link(const HubFile& file) const {
  const fs::path path = fs::path(model_.snapshot) / file.path;
  LAMINA_RETURN_IF_ERROR(MakeFolders(path.parent_path().string()));
  const std::string target =
      fs::path(BlobPath(file)).lexically_relative(path.parent_path()).string();
  std::error_code error;
  if (fs::read_symlink(path, error).string() == target) return OkStatus();
  const std::string made = fmt::format("{}/.link-{:x}", model_.snapshot, RandomId());
  if (symlink(target.c_str(), made.c_str()) != 0)
    return InvalidArgument(made + ": " + ErrnoText("symlink") +
                           "; HF_HOME names another folder for the cache of models");
  if (std::rename(made.c_str(), path.c_str()) == 0) return OkStatus();
  const std::string why = ErrnoText("rename");
  unlink(made.c_str());
  return InvalidArgument(path.string() + ": " + why + "; remove what is there");
}

Status Puller::WriteRef() const {
  if (name_.revision == model_.commit) return OkStatus();
  const std::string path = options_.cache.RefPath(name_);
  LAMINA_RETURN_IF_ERROR(MakeFolders(fs::path(path).parent_path().string()));
  const std::string made = fmt::format("{}/.ref-{:x}", folder_, RandomId());
  LAMINA_RETURN_IF_ERROR(WriteOutput(made, model_.commit));
  if (std::rename(made.c_str(), path.c_str()) == 0) return OkStatus();
  const std::string why = ErrnoText("rename");
  unlink(made.c_str());
  return InvalidArgument(path + ": " + why + "; remove what is there");
}

Result<PulledModel> Puller::Run() {
  LAMINA_ASSIGN_OR_RETURN(model_.commit, hub_.CommitOf(name_));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<HubFile> all, hub_.FilesOf(name_, model_.commit));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<HubFile> files,
                          SelectFiles(all, name_, options_.include));
  model_.snapshot = folder_ + "/snapshots/" + model_.commit;
  std::vector<HubFile> contents;  // without those that have the content of another one
  std::set<std::string> hashes;
  for (const HubFile& file : files) {
    if (!hashes.insert(file.hash()).second) continue;
    contents.push_back(file);
    model_.num_bytes += file.size;
  }
  LAMINA_RETURN_IF_ERROR(MakeRoom(contents));
  LAMINA_RETURN_IF_ERROR(PullAll(contents));
  for (const HubFile& file : files) LAMINA_RETURN_IF_ERROR(Link(file));
  LAMINA_RETURN_IF_ERROR(WriteRef());
  model_.num_files = files.size();
  model_.downloaded_bytes = downloaded_bytes_;
  return model_;
}

}  // namespace

Result<PulledModel> Pull(const PullOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<HubClient> hub, HubClient::Create(options.hub));
  return Puller(options, *hub).Run();
}

std::string HubToken() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const char* const token = std::getenv(name); token != nullptr && *token != '\0')
      return token;
  }
  const char* const named = std::getenv("HF_TOKEN_PATH");
  const std::string path =
      named != nullptr && *named != '\0' ? named : HuggingFaceHome() + "/token";
  constexpr size_t kMaxTokenFileBytes = 4096;
  std::string token;
  if (Result<std::string> stored = ReadTextFile(path, kMaxTokenFileBytes); stored.ok())
    token = *std::move(stored);
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' '))
    token.pop_back();
  return token;
}

}  // namespace lamina
