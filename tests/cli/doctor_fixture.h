// A host that is described by files, for the doctor.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/doctor/host_checks.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {

class Doctor : public ::testing::Test {
 protected:
  Doctor() {
    needs_.address = "10.0.0.7";
    needs_.transport = TransportKind::kVerbs;
  }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text << "\n";
  }

  // A RoCE port whose GID 3 stands for 10.0.0.7.
  void WriteRoce(const std::string& state, const std::string& type) {
    const std::string port = "/sys/class/infiniband/mlx5_0/ports/1/";
    Write(port + "state", state);
    Write(port + "link_layer", "Ethernet");
    Write(port + "rate", "100 Gb/sec (4X EDR)");
    Write(port + "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
    Write(port + "gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0007");
    Write(port + "gid_attrs/types/3", type);
    Write(port + "gid_attrs/ndevs/3", "eth2");
  }

  HostView host() const { return HostView(root_); }

  static Finding Find(const std::vector<Finding>& findings, const std::string& check) {
    for (const Finding& finding : findings) {
      if (finding.check == check) return finding;
    }
    return {check, "no such finding", Level::kFail, "", ""};
  }

  const TemporaryFolder folder_;
  const std::string root_ = folder_.path();
  HostNeeds needs_;
};

}  // namespace lamina::testing
