// `lamina serve --cluster` as a child process, as a supervisor runs it, which takes fronts.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "manager/cluster_config.h"
#include "manager/process.h"
#include "manager/remote_engine.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {

class ManagerProcess {
 public:
  // Of a cluster whose nodes run; chooses the ports for clients and for fronts. The process is
  // started by Start.
  explicit ManagerProcess(ClusterConfig config);
  ~ManagerProcess();

  // Does not wait until it serves. REQUIRES: it does not run.
  Status Start();
  void Send(int signal);
  // Waits until it has ended.
  void AwaitEnd(Deadline deadline);

  // For a front of its own of this process.
  Result<std::unique_ptr<RemoteEngine>> Connect() const;

  const ClusterConfig& config() const { return config_; }
  std::string config_file() const { return folder_ / "cluster.yaml"; }
  std::string url() const;
  std::string output() const;

 private:
  ClusterConfig config_;
  const TemporaryFolder folder_;
  std::optional<ChildProcess> process_;
};

}  // namespace lamina::testing
