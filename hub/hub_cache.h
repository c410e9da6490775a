// The folder in which Hugging Face's tools keep what they have downloaded, which lamina shares with
// them:
//
//   models--OWNER--NAME/refs/REVISION           the commit that a branch or tag was last known as
//   models--OWNER--NAME/blobs/HASH              contents of files
//   models--OWNER--NAME/snapshots/COMMIT/PATH   links to blobs, by the names of the files
//   .locks/models--OWNER--NAME/HASH.lock        locked by flock(2) while the blob is written
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/hub_name.h"

namespace lamina {

struct CachedModel {
  HubName name;          // with a revision that leads to the commit, or the commit itself
  std::string commit;    // 40 hexadecimal digits
  std::string snapshot;  // the folder with its files
};

// Value type. Thread: any; other processes may change the folder meanwhile.
class HubCache {
 public:
  explicit HubCache(std::string root) : root_(std::move(root)) {}
  // $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
  // ~/.cache/huggingface/hub. Need not exist.
  static HubCache Default();

  const std::string& root() const { return root_; }
  std::string RepositoryFolder(const HubName& name) const;
  std::string LockFolder(const HubName& name) const;
  std::string RefPath(const HubName& name) const;

  // The folder of the commit that the name's revision is here. kNotFound if there is none; the
  // message says how to get it.
  Result<std::string> Snapshot(const HubName& name) const;

  // All snapshots, sorted by name.
  std::vector<CachedModel> List() const;

 private:
  std::string root_;
};

// Where Hugging Face's tools keep their settings: $HF_HOME, else $XDG_CACHE_HOME/huggingface, else
// ~/.cache/huggingface.
std::string HuggingFaceHome();

// The paths of all files in the folder and those below it, relative to it and sorted. Links to
// files count as files, links to folders are not followed.
std::vector<std::string> FilesBelow(const std::string& folder);

}  // namespace lamina
