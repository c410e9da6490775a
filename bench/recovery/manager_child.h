// The manager as a process of its own, so that faults can be done to it. This process is its front.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "manager/cluster_config.h"
#include "manager/engine.h"
#include "manager/process.h"
#include "model/model_config.h"

namespace lamina {

// `lamina serve`, with a copy of a cluster file in which nodes stand where they run. Thread: owner.
class ManagerChild {
 public:
  // `config`: of `file`, resolved, with the hosts and ports of nodes that run. Its log stands in
  // the folder of theirs. kInternal if the copy cannot be written or there is no port left;
  // kNotFound if this program's folder has no `lamina`.
  static Result<std::unique_ptr<ManagerChild>> Start(const std::string& file,
                                                     const ClusterConfig& config);
  ManagerChild(const ManagerChild&) = delete;
  ~ManagerChild();

  // Waits until it serves. Errors are those of RemoteEngine::Connect, and of Check.
  Result<std::unique_ptr<Engine>> Connect(const ModelConfig& model);

  void Kill(int signal);
  // Starts it again, once it has ended.
  Status Restart();
  // kPeerLost, with the end of its log, if it ended and nobody killed it.
  Status Check();

 private:
  explicit ManagerChild(ClusterConfig config) : config_(std::move(config)) {}
  Status WriteFile(const std::string& file) const;
  Status Spawn();
  std::string path() const { return config_.log_dir + "/manager.yaml"; }
  std::string log_path() const { return config_.log_dir + "/manager.log"; }

  ClusterConfig config_;
  std::optional<ChildProcess> child_;
  bool killed_ = false;
};

}  // namespace lamina
