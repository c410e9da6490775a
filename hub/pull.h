// Downloads a model from a hub into the cache (hub_cache.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/hub_cache.h"
#include "hub/hub_client.h"
#include "hub/hub_name.h"

namespace lamina {

struct PullProgress {
  std::string path;                         // a file that is being downloaded
  size_t number = 0, num_files = 0;         // how many were begun, and how many there are
  int64_t done_bytes = 0, total_bytes = 0;  // of all files
};

struct PullOptions {
  HubName name;
  std::vector<std::string> include;  // see SelectFiles
  HubOptions hub;
  HubCache cache = HubCache::Default();
  // Called by one thread at a time, which need not be the caller's.
  std::function<void(const PullProgress&)> on_progress = [](const PullProgress&) {};
};

struct PulledModel {
  std::string commit, snapshot;
  size_t num_files = 0;
  int64_t num_bytes = 0;         // of these files
  int64_t downloaded_bytes = 0;  // the others were there
};

// A blob gets its name when it is whole and has its checksum, and the snapshot gets its links when
// all blobs are there; the revision comes last. What is cut short is gone on with by the next call.
// Several processes may pull at a time. Nothing is written outside of the repository's folder in
// the cache and that of its locks.
//
// Errors of HubClient, SelectFiles and BlobFile; kTimeout if another process holds a file's lock
// for hours.
Result<PulledModel> Pull(const PullOptions& options);

// $HF_TOKEN, else what Hugging Face's command line has stored when its user logged in; "" if there
// is neither.
std::string HubToken();

}  // namespace lamina
