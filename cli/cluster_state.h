// What `lamina cluster up` started, so that `down` stops exactly that. One JSON file per cluster
// name and user:
//   ${XDG_STATE_HOME:-~/.local/state}/lamina/NAME/state.json
//   {"version": 1, "cluster": NAME, "config": "/path/of/the.yaml",
//    "daemons": [{"name", "host", "pid", "start_time", "log", "start_id"}]}
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "manager/process.h"

namespace lamina {

struct DaemonRecord {
  std::string name;
  std::string host;
  ProcessId process;
  std::string log;  // on `host`
  // Written before the daemon is started, with the pid 0: whoever finds such a record later asks
  // the host which processes have this mark.
  std::string start_id = {};

  bool may_be_starting() const { return process.pid == 0; }
};

struct ClusterState {
  std::string cluster;
  std::string config_path;
  std::vector<DaemonRecord> daemons;  // in the order in which they were started
};

// Owns the cluster's state folder while it lives: a second `up` or `down` of the same cluster is
// refused. Thread: owner.
class ClusterStateFile {
 public:
  // Creates the folder if need be. kTryAgain if another process holds it.
  static Result<ClusterStateFile> Open(const std::string& cluster_name);

  ClusterStateFile(ClusterStateFile&& other) noexcept
      : folder_(std::move(other.folder_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}
  ClusterStateFile& operator=(ClusterStateFile&&) = delete;
  ~ClusterStateFile();

  // No daemons if nothing is recorded. kCorrupt names the file if it cannot be understood.
  Result<ClusterState> Read() const;

  // Replaces the file in one step; removes it if no daemon is left.
  Status Write(const ClusterState& state) const;

 private:
  ClusterStateFile(std::string folder, int lock_fd)
      : folder_(std::move(folder)), lock_fd_(lock_fd) {}
  std::string path() const { return folder_ + "/state.json"; }

  std::string folder_;
  int lock_fd_;
};

// Reads without holding the folder, for `status`.
Result<ClusterState> ReadClusterState(const std::string& cluster_name);

}  // namespace lamina
