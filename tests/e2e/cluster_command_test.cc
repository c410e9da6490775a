// `lamina cluster up | status | down` with real daemons: what it says is so, and nothing stays
// behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>
#include <regex>
#include <sstream>

#include "api/http_client.h"
#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"
#include "transport/network_interface.h"
#include "transport/tcp_socket.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

class ClusterCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1);
    port_ = FreePort();
    compute_port_ = FreePort();
    WriteConfig("127.0.0.1");
  }
  void TearDown() override { Run("down"); }

  // A cluster on `host`, as it stands in a YAML, with `more` lines for nodes.
  void WriteConfig(const std::string& host, const std::string& transport = "auto",
                   const std::string& more = "") const {
    std::ofstream(config()) << "version: 1\n"
                            << "cluster: {name: probe, controller: " << host
                            << ", http_port: " << port_ << "}\n"
                            << "nodes:\n"
                            << "  - {name: c0, role: compute, host: " << host
                            << ", port: " << compute_port_ << "}\n"
                            << "  - {name: m0, role: memory, host: " << host
                            << ", port: " << FreePort() << ", memory: 16MiB, threads: 1}\n"
                            << "  - {name: m1, role: memory, host: " << host
                            << ", port: " << FreePort() << ", memory: 16MiB, threads: 1}\n"
                            << more << "transport: {kind: " << transport << "}\n"
                            << "model: {path: " << SourcePath("/models/tiny-stories") << "}\n";
  }

  std::string config() const { return folder_ / "cluster.yaml"; }
  CommandOutput Run(const std::string& action) const {
    return RunLamina({"cluster", action, config()});
  }
  json Status() const {
    return json::parse(RunLamina({"cluster", "status", config(), "--json"}).out, nullptr, false);
  }
  std::string StateOf(const std::string& name) const {
    const json status = Status();
    for (const json& node : status.value("nodes", json::array()))
      if (node["name"] == name) return node["state"].get<std::string>();
    return "not listed";
  }
  bool AwaitState(const std::string& name, const std::string& state) const {
    return AwaitTrue([&] { return StateOf(name) == state; }, Deadline::After(seconds(10)));
  }
  std::string Complete(const std::string& host = "127.0.0.1") const {
    const CommandOutput output =
        RunLamina({"complete", "Once upon a time", "--max-tokens", "8", "--temperature", "0",
                   "--url", "http://" + host + ":" + std::to_string(port_)});
    return output.out + output.err;
  }

  // The ids in "started NAME on HOST, pid N, ...", by name.
  static std::map<std::string, pid_t> StartedBy(const CommandOutput& up) {
    std::map<std::string, pid_t> pids;
    static const std::regex kLine("started (\\w+) on [^,]*, pid (\\d+)");
    for (std::sregex_iterator match(up.out.begin(), up.out.end(), kLine), end; match != end;
         ++match)
      pids[(*match)[1]] = std::stoi((*match)[2]);
    return pids;
  }

  const TemporaryFolder folder_;
  int port_ = 0, compute_port_ = 0;
};

TEST_F(ClusterCommand, StartsServesAndStopsEverything) {
  const CommandOutput up = Run("up");
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  const std::map<std::string, pid_t> pids = StartedBy(up);
  ASSERT_EQ(pids.size(), 4u) << up.out;
  for (const auto& [name, pid] : pids) EXPECT_TRUE(Runs(pid)) << name;
  EXPECT_THAT(Complete(), HasSubstr(", in a "));

  const CommandOutput again = Run("up");
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_THAT(again.err, HasSubstr("already up"));

  const CommandOutput down = Run("down");
  EXPECT_EQ(down.exit_status, 0) << down.err;
  for (const auto& [name, pid] : pids) EXPECT_FALSE(Runs(pid)) << name << " stays behind";
  EXPECT_EQ(Run("status").exit_status, 1);
  const CommandOutput nothing = Run("down");
  EXPECT_EQ(nothing.exit_status, 0) << "safe to run twice";
  EXPECT_THAT(nothing.out, HasSubstr("nothing to stop"));
}

// Over tcp, so that the data path has such an address too.
TEST_F(ClusterCommand, ServesAndIsExaminedOverIpv6) {
  if (InterfaceOf("::1").empty()) GTEST_SKIP() << "this machine has no ::1";
  WriteConfig("\"[0:0:0:0:0:0:0:1]\"", "tcp");
  const CommandOutput doctor = RunLamina({"doctor", config(), "--probe-seconds", "0.1", "--json"});
  EXPECT_EQ(doctor.exit_status, 0) << doctor.out << doctor.err;
  const json report = json::parse(doctor.out, nullptr, false);
  std::string path;
  for (const json& finding : report.value("findings", json::array())) {
    if (finding["check"] == "pair") path = finding["cause"];
  }
  EXPECT_THAT(path, HasSubstr("tcp: "));

  const CommandOutput up = Run("up");
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  EXPECT_THAT(up.out, HasSubstr("http://[::1]:" + std::to_string(port_)));
  EXPECT_THAT(Complete("[::1]"), HasSubstr(", in a "));
  const json status = Status();
  for (const json& node : status.value("nodes", json::array()))
    EXPECT_THAT(node["address"].get<std::string>(), HasSubstr("[::1]:"));
}

TEST_F(ClusterCommand, StatusTellsOfNodesThatDied) {
  const CommandOutput up = Run("up");
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  std::map<std::string, pid_t> pids = StartedBy(up);
  EXPECT_EQ(StateOf("m1"), "ready");
  ASSERT_EQ(kill(pids["m1"], SIGKILL), 0);
  EXPECT_TRUE(AwaitState("m1", "lost")) << Status();
  EXPECT_EQ(StateOf("m0"), "ready");
  EXPECT_THAT(Complete(), HasSubstr(", in a ")) << "m0 still serves";
  EXPECT_EQ(Run("status").exit_status, 0);

  ASSERT_EQ(kill(pids["c0"], SIGKILL), 0);
  EXPECT_TRUE(
      AwaitTrue([&] { return Run("status").exit_status == 1; }, Deadline::After(seconds(10))));
  EXPECT_THAT(Run("status").out, HasSubstr("lost compute node c0"));
  EXPECT_TRUE(
      AwaitTrue([&] { return Status()["state"] == "outage"; }, Deadline::After(seconds(10))))
      << Status();
  std::future<std::string> waits = std::async(std::launch::async, [&] { return Complete(); });
  EXPECT_TRUE(AwaitTrue([&] { return Status()["scheduler"]["num_waiting"] == 1; },
                        Deadline::After(seconds(10))))
      << Status();
  // As its supervisor does it.
  Result<ChildProcess> c0 =
      ChildProcess::Spawn({{BinPath("/lamina-compute-node"), "--name", "c0", "--listen",
                            "127.0.0.1:" + std::to_string(compute_port_)},
                           {},
                           folder_ / "c0.log"});
  ASSERT_TRUE(c0.ok()) << c0.status();
  EXPECT_THAT(waits.get(), HasSubstr(", in a "));
  EXPECT_EQ(Run("status").exit_status, 0);

  const CommandOutput down = Run("down");
  EXPECT_EQ(down.exit_status, 0) << down.err;
  for (const auto& [name, pid] : pids) EXPECT_FALSE(Runs(pid)) << name << " stays behind";
}

TEST_F(ClusterCommand, AStandbyIsStartedTakesAPlaceAndIsStopped) {
  WriteConfig("127.0.0.1", "auto",
              "  - {name: s0, role: compute, standby: true, host: 127.0.0.1, port: " +
                  std::to_string(FreePort()) + "}\n");
  const CommandOutput up = Run("up");
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  std::map<std::string, pid_t> pids = StartedBy(up);
  ASSERT_EQ(pids.size(), 5u) << up.out;
  EXPECT_TRUE(AwaitState("s0", "standby")) << Status();
  ASSERT_EQ(kill(pids["c0"], SIGKILL), 0);
  EXPECT_TRUE(AwaitState("s0", "ready")) << Status();
  EXPECT_TRUE(AwaitState("c0", "lost")) << Status();
  EXPECT_THAT(Complete(), HasSubstr(", in a "));
  EXPECT_EQ(Run("status").exit_status, 0);
  EXPECT_EQ(Run("down").exit_status, 0);
  for (const auto& [name, pid] : pids) EXPECT_FALSE(Runs(pid)) << name << " stays behind";
}

TEST_F(ClusterCommand, TheDoctorLooksWhetherFrontsCanBeTaken) {
  boost::asio::io_context context;
  const int port = FreePort();
  std::ostringstream yaml;
  yaml << std::ifstream(config()).rdbuf();
  std::string with_front = yaml.str();
  const size_t at = with_front.find("http_port:");
  ASSERT_NE(at, std::string::npos);
  with_front.insert(at, "front_port: " + std::to_string(port) + ", ");
  WriteFile(config(), with_front);
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const std::vector<std::string> doctor = {"doctor", config(), "--probe-seconds", "0.1"};
  EXPECT_THAT(RunLamina(doctor).out, HasSubstr("ok    front-port   " + address));
  const Result<Tcp::acceptor> taken = ListenTcp(context, address);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_THAT(RunLamina(doctor).out, HasSubstr("fail  front-port   " + address));
}

TEST_F(ClusterCommand, TheDoctorSaysWhatUpWouldRefuse) {
  boost::asio::io_context context;
  const Result<Tcp::acceptor> taken = ListenTcp(context, "127.0.0.1:" + std::to_string(port_));
  ASSERT_TRUE(taken.ok()) << taken.status();
  const CommandOutput doctor = RunLamina({"doctor", config(), "--probe-seconds", "0.1"});
  EXPECT_EQ(doctor.exit_status, 1);
  EXPECT_THAT(doctor.out,
              HasSubstr("fail  http-port    http://127.0.0.1:" + std::to_string(port_)));
  EXPECT_EQ(Run("up").exit_status, 1);
}

TEST_F(ClusterCommand, TheDoctorKnowsTheClustersOwnPorts) {
  const CommandOutput up = Run("up");
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  const CommandOutput doctor = RunLamina({"doctor", config(), "--probe-seconds", "0.1", "--json"});
  const json report = json::parse(doctor.out, nullptr, false);
  int ports = 0;
  for (const json& finding : report.value("findings", json::array())) {
    if (finding["check"] != "port") continue;
    ++ports;
    EXPECT_EQ(finding["level"], "ok") << finding;
    EXPECT_EQ(finding["cause"], "in use by this cluster, which is up");
  }
  EXPECT_EQ(ports, 3) << doctor.out << doctor.err;
}

TEST_F(ClusterCommand, AManagerThatDiedIsStartedAgainBesideItsNodes) {
  const CommandOutput up = Run("up");
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  const std::map<std::string, pid_t> before = StartedBy(up);
  const pid_t manager = before.at("manager");
  kill(manager, SIGKILL);
  ASSERT_TRUE(AwaitTrue([&] { return !Runs(manager); }, Deadline::After(seconds(10))));
  const CommandOutput again = Run("up");
  ASSERT_EQ(again.exit_status, 0) << again.out << again.err;
  EXPECT_EQ(StartedBy(again).size(), 1u) << again.out;
  EXPECT_THAT(Complete(), HasSubstr(", in a "));
  EXPECT_EQ(Run("down").exit_status, 0);
  for (const auto& [name, pid] : before) EXPECT_FALSE(Runs(pid)) << name << " stays behind";
}

TEST_F(ClusterCommand, AnUpThatFailsLeavesNothingBehind) {
  std::ifstream file(config());
  std::string text{std::istreambuf_iterator<char>(file), {}};
  text.replace(text.find("tiny-stories"), 12, "no-such-model");
  std::ofstream(config()) << text;
  const CommandOutput up = Run("up");
  EXPECT_EQ(up.exit_status, 1);
  EXPECT_THAT(up.err, HasSubstr("no-such-model/config.json"));
  for (const auto& [name, pid] : StartedBy(up)) EXPECT_FALSE(Runs(pid)) << name << " stays behind";
}

}  // namespace
}  // namespace lamina::testing
