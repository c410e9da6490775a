// A cluster of fake daemons that `lamina cluster` starts and stops.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "cli/cluster_ops.h"
#include "cli/cluster_state.h"
#include "manager/process.h"
#include "tests/cli/fake_programs.h"
#include "tests/support/free_port.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {

// A cluster of fake daemons: c0, m0 and m1 on this machine, with state and logs in a temporary
// folder.
class ClusterOpsTest : public ::testing::Test {
 protected:
  ClusterOpsTest() {
    setenv("XDG_STATE_HOME", (folder_.path() + "/state").c_str(), 1);
    MakeFakePrograms(folder_.path() + "/bin");
    config_.name = "test";
    config_.http_port = FreePort();
    config_.log_dir = folder_.path() + "/logs with a space";
    config_.served_name = "fake";
    config_.start_timeout = std::chrono::seconds(20);
    for (const char* name : {"c0", "m0", "m1"}) {
      NodeConfig node;
      node.name = name;
      node.role = node.name == "c0" ? NodeRole::kCompute : NodeRole::kMemory;
      node.port = FreePort();
      node.memory_bytes = node.name == "c0" ? 0 : int64_t{64} << 20;
      config_.nodes.push_back(node);
    }
    options_.config_path = folder_.path() + "/cluster.yaml";
    options_.bin_dir = folder_.path() + "/bin";
    options_.grace = std::chrono::seconds(10);
    options_.no_progress = std::chrono::seconds(20);
  }

  ~ClusterOpsTest() override {
    for (const DaemonRecord& daemon : Records()) {
      if (FindProcess(daemon.process.pid) == daemon.process) kill(daemon.process.pid, SIGKILL);
    }
  }

  std::vector<DaemonRecord> Records() {
    const Result<ClusterState> state = ReadClusterState(config_.name);
    EXPECT_TRUE(state.ok()) << state.status();
    return state.ok() ? state->daemons : std::vector<DaemonRecord>();
  }

  // Ends the daemon as a crash would, and waits until it is gone.
  void Crash(const std::string& name) {
    for (const DaemonRecord& daemon : Records()) {
      if (daemon.name != name) continue;
      kill(daemon.process.pid, SIGKILL);
      EXPECT_TRUE(testing::AwaitTrue([&] { return !Runs(daemon); },
                                     Deadline::After(std::chrono::seconds(20))));
    }
  }

  static bool Runs(const DaemonRecord& daemon) {
    return FindProcess(daemon.process.pid) == daemon.process;
  }

  Status Up() {
    std::string text = "http_port: " + std::to_string(config_.http_port) + "\n";
    for (const NodeConfig& node : config_.nodes)
      text += "# node " + node.name + " at " + ClusterConfig::Address(node) + "\n";
    WriteFile(options_.config_path, text);  // as the fake manager reads it
    return ClusterUp(config_, options_, out_);
  }
  Status Down() { return ClusterDown(config_, options_, out_); }

  TemporaryFolder folder_;
  ClusterConfig config_;
  ClusterOpsOptions options_;
  std::ostringstream out_;
};

}  // namespace lamina::testing
