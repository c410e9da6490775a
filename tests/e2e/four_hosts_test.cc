// Four hosts as network namespaces, joined by links with a delay and a rate: the cluster serves,
// and the doctor measures what was set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kNumHosts = 4;
// In each direction; emulated hosts without fine timers round it up by 4 ms.
constexpr double kDelayMs = 40;
constexpr double kMegabits = 50;  // per second, out of each host

CommandOutput Shell(const std::string& script) {
  Result<CommandOutput> output =
      RunCommand({"sh", "-ec", script}, Deadline::After(std::chrono::minutes(10)));
  return output.ok() ? *output : CommandOutput{-1, "", output.status().ToString()};
}

class FourHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    prefix_ = "lm" + std::to_string(getpid());
    if (geteuid() != 0 ||
        Shell("ip netns add " + prefix_ + "x && ip netns del " + prefix_ + "x").exit_status != 0)
      GTEST_SKIP() << "network namespaces need root and iproute2";
    std::string script = "ip netns add " + Space(0) + "\nip -n " + Space(0) +
                         " link add br0 type bridge\nip -n " + Space(0) + " link set br0 up\n";
    for (int i = 1; i <= kNumHosts; ++i) {
      const std::string space = Space(i), n = std::to_string(i);
      script += "ip netns add " + space + "\nip -n " + space + " link set lo up\n";
      script += "ip -n " + space + " link add eth0 type veth peer name port" + n + " netns " +
                Space(0) + "\n";
      script += "ip -n " + Space(0) + " link set port" + n + " master br0 up\n";
      script += "ip -n " + space + " addr add " + Host(i) + "/24 dev eth0\nip -n " + space +
                " link set eth0 up\n";
      script += "tc -n " + space + " qdisc add dev eth0 root " + Limits() + "\n";
    }
    const CommandOutput made = Shell(script);
    ASSERT_EQ(made.exit_status, 0) << made.err;
    WriteFiles();
  }

  void TearDown() override {
    if (IsSkipped()) return;
    Lamina("cluster down " + Config());
    for (int i = 0; i <= kNumHosts; ++i) Shell("ip netns del " + Space(i));
  }

  // The cluster, and what takes the place of ssh: the last part of the address is the namespace.
  void WriteFiles() {
    const std::string ssh = folder_ / "ssh", secret = folder_ / "secret";
    std::ofstream(ssh) << "#!/bin/sh\nhost=$1\nshift\nexec ip netns exec " << prefix_
                       << "h${host##*.} sh -c \"$*\"\n";
    std::ofstream(secret) << "a secret of four hosts\n";
    ASSERT_EQ(Shell("chmod 700 " + ssh + "; chmod 600 " + secret).exit_status, 0);
    std::ofstream config(Config());
    config << "version: 1\ncluster: {name: hosts, controller: " << Host(1)
           << ", secret_file: " << secret << "}\n"
           << "defaults: {ssh: " << ssh << ", env: {XDG_STATE_HOME: " << folder_ / "state"
           << "}}\nnodes:\n"
           << "  - {name: c0, role: compute, host: " << Host(1) << ", port: 7100}\n";
    for (int i = 2; i <= kNumHosts; ++i)
      config << "  - {name: m" << i << ", role: memory, host: " << Host(i)
             << ", port: 7100, memory: 16MiB, threads: 1}\n";
    config << "model: {path: " + SourcePath("/models/tiny-stories") + "}\n";
  }

  // Delay and rate by netem; where the kernel has none, the rate alone.
  std::string Limits() {
    const std::string rate = std::to_string(static_cast<int>(kMegabits)) + "mbit";
    const std::string netem =
        "netem limit 20000 delay " + std::to_string(kDelayMs) + "ms rate " + rate;
    if (!has_netem_) {
      const std::string space = prefix_ + "n";
      has_netem_ = Shell("ip netns add " + space + "; ip -n " + space +
                         " link add e0 type veth peer name e1; tc -n " + space +
                         " qdisc add dev e0 root " + netem)
                       .exit_status == 0;
      Shell("ip netns del " + space);
    }
    return *has_netem_ ? netem : "tbf burst 128kb latency 50ms rate " + rate;
  }

  std::string Space(int i) const { return prefix_ + "h" + std::to_string(i); }
  static std::string Host(int i) { return "10.88.0." + std::to_string(i); }
  std::string Config() const { return folder_ / "cluster.yaml"; }

  // The command as someone on the first host gives it.
  CommandOutput Lamina(const std::string& arguments) const {
    return Shell("export XDG_STATE_HOME=" + folder_ / "state" + "; exec ip netns exec " + Space(1) +
                 " " + BinPath("/lamina") + " " + arguments);
  }

  std::string prefix_;
  const TemporaryFolder folder_;
  std::optional<bool> has_netem_;
};

TEST_F(FourHosts, TheClusterServesAndTheDoctorMeasuresTheLinks) {
  const CommandOutput doctor = Lamina("doctor --json --probe-seconds 4 " + Config());
  EXPECT_EQ(doctor.exit_status, 0) << doctor.out << doctor.err;
  const json report = json::parse(doctor.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << doctor.out << doctor.err;
  int num_pairs = 0;
  for (const json& finding : report["findings"]) {
    if (finding["check"] != "pair") continue;
    ++num_pairs;
    SCOPED_TRACE(finding.dump());
    char fabric[16] = "";
    double us = 0, gigabits = 0;
    ASSERT_EQ(std::sscanf(finding["cause"].get<std::string>().c_str(), "%15[a-z]: %lf us, %lf Gb/s",
                          fabric, &us, &gigabits),
              3);
    EXPECT_STREQ(fabric, "tcp");
    if (*has_netem_) {
      EXPECT_NEAR(us, kDelayMs * 1e3, 0.15 * kDelayMs * 1e3);
    } else {
      EXPECT_LT(us, 20e3) << "no delay was set";
    }
    EXPECT_NEAR(gigabits, kMegabits * 1e-3, 0.15 * kMegabits * 1e-3);
    EXPECT_THAT(finding["cause"].get<std::string>(),
                HasSubstr("shm: the other node is on another host"));
  }
  EXPECT_EQ(num_pairs, 6) << "three memory nodes, both directions";

  const CommandOutput up = Lamina("cluster up " + Config());
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  const CommandOutput text = Lamina("complete --url http://" + Host(1) +
                                    ":8000 'Once upon a time' --max-tokens 16 --temperature 0");
  EXPECT_THAT(text.out, HasSubstr(", in a garden, there lived a shy")) << text.err;
  const json status = json::parse(Lamina("cluster status --json " + Config()).out, nullptr, false);
  ASSERT_TRUE(status.is_object());
  for (const json& node : status["nodes"]) {
    EXPECT_EQ(node["transport"], node["role"] == "memory" ? "tcp" : "");
  }
  const CommandOutput down = Lamina("cluster down " + Config());
  EXPECT_EQ(down.exit_status, 0) << down.err;
}

}  // namespace
}  // namespace lamina::testing
