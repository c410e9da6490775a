#include "cli/cluster_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lamina {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Result<std::string> StateFolder(const std::string& cluster_name) {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return std::string(state) + "/lamina/" + cluster_name;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    return NotFound("no place for the cluster's state: neither XDG_STATE_HOME nor HOME is set");
  return std::string(home) + "/.local/state/lamina/" + cluster_name;
}

json ToJson(const ClusterState& state) {
  json daemons = json::array();
  for (const DaemonRecord& daemon : state.daemons) {
    daemons.push_back({{"name", daemon.name},
                       {"host", daemon.host},
                       {"pid", daemon.process.pid},
                       {"start_time", daemon.process.start_time},
                       {"log", daemon.log},
                       {"start_id", daemon.start_id}});
  }
  return {{"version", 1},
          {"cluster", state.cluster},
          {"config", state.config_path},
          {"daemons", daemons}};
}

Result<ClusterState> FromFile(const std::string& path) {
  ClusterState state;
  std::ifstream in(path);
  if (!in) return state;
  try {
    const json file = json::parse(in);
    file.at("cluster").get_to(state.cluster);
    file.at("config").get_to(state.config_path);
    for (const json& item : file.at("daemons")) {
      DaemonRecord daemon;
      item.at("name").get_to(daemon.name);
      item.at("host").get_to(daemon.host);
      item.at("pid").get_to(daemon.process.pid);
      item.at("start_time").get_to(daemon.process.start_time);
      item.at("log").get_to(daemon.log);
      daemon.start_id = item.value("start_id", "");
      const bool may_be_starting = daemon.process.pid == 0 && !daemon.start_id.empty();
      if (daemon.process.pid <= 1 && !may_be_starting)
        return Corrupt(path + ": daemon '" + daemon.name + "' has the pid " +
                       std::to_string(daemon.process.pid));
      state.daemons.push_back(std::move(daemon));
    }
  } catch (const json::exception& error) {
    return Corrupt(path + ": " + error.what() +
                   "; if no daemon of this cluster runs any more, delete the file");
  }
  return state;
}

}  // namespace

Result<ClusterStateFile> ClusterStateFile::Open(const std::string& cluster_name) {
  LAMINA_ASSIGN_OR_RETURN(const std::string folder, StateFolder(cluster_name));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return InternalError(folder + ": " + error.message());
  const int lock_fd = open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd < 0) return InternalError(folder + "/lock: " + std::strerror(errno));
  if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    close(lock_fd);
    return TryAgain("another `lamina cluster up` or `down` is at work on cluster '" + cluster_name +
                    "'");
  }
  return ClusterStateFile(folder, lock_fd);
}

ClusterStateFile::~ClusterStateFile() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

Result<ClusterState> ClusterStateFile::Read() const { return FromFile(path()); }

Status ClusterStateFile::Write(const ClusterState& state) const {
  std::error_code error;
  if (state.daemons.empty()) {
    fs::remove(path(), error);
    return error ? InternalError(path() + ": " + error.message()) : OkStatus();
  }
  const std::string temporary = path() + ".new";
  std::ofstream out(temporary);
  out << ToJson(state).dump(2) << "\n";
  out.close();
  if (!out) return InternalError(temporary + ": cannot be written: " + std::strerror(errno));
  fs::rename(temporary, path(), error);
  return error ? InternalError(path() + ": " + error.message()) : OkStatus();
}

Result<ClusterState> ReadClusterState(const std::string& cluster_name) {
  LAMINA_ASSIGN_OR_RETURN(const std::string folder, StateFolder(cluster_name));
  return FromFile(folder + "/state.json");
}

}  // namespace lamina
