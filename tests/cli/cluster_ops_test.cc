#include "cli/cluster_ops.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "api/http_client.h"
#include "cli/cluster_state.h"
#include "cli/cluster_status.h"
#include "manager/cluster_commands.h"
#include "manager/process.h"
#include "tests/cli/cluster_ops_fixture.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A name for the loopback besides localhost and the host's own name, from /etc/hosts; "localhost"
// if there is none.
std::string AliasOfThisMachine() {
  std::array<char, 256> own{};
  gethostname(own.data(), own.size() - 1);
  std::ifstream hosts("/etc/hosts");
  for (std::string line; std::getline(hosts, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string address;
    if (!(words >> address) || (address != "127.0.0.1" && address != "::1")) continue;
    for (std::string name; words >> name;) {
      if (name != "localhost" && name != own.data()) return name;
    }
  }
  return "localhost";
}

TEST_F(ClusterOpsTest, CommandLinesOfTheDaemons) {
  config_.nodes[1].threads = 3;
  config_.nodes[1].cpus = "0-3";
  config_.nodes[1].device = "cuda:1";
  config_.nodes[1].host_memory_bytes = int64_t{16} << 20;
  const std::vector<DaemonCommand> commands = DaemonCommands(config_, "/c.yaml", true);
  ASSERT_EQ(commands.size(), 4u);
  EXPECT_EQ(
      ShellJoin(commands[0].argv),
      "lamina-memory-node --name m0 --listen 127.0.0.1:" + std::to_string(config_.nodes[1].port) +
          " --memory 64MiB --host-memory 16MiB --threads 3 --cpus 0-3 --device cuda:1");
  EXPECT_EQ(ShellJoin(commands[2].argv), "lamina-compute-node --name c0 --listen 127.0.0.1:" +
                                             std::to_string(config_.nodes[0].port) +
                                             " --threads 0");
  EXPECT_EQ(ShellJoin(commands[3].argv), "lamina serve --cluster /c.yaml");
  EXPECT_EQ(DaemonCommands(config_, "/c.yaml", false).size(), 3u);
  config_.secret_file = "/etc/lamina/secret";
  for (const DaemonCommand& command : DaemonCommands(config_, "/c.yaml", false))
    EXPECT_THAT(ShellJoin(command.argv), HasSubstr(" --secret-file /etc/lamina/secret"));
  config_.tls = {"/etc/lamina/node.pem", "/etc/lamina/node.key", "/etc/lamina/ca.pem"};
  for (const DaemonCommand& command : DaemonCommands(config_, "/c.yaml", false)) {
    EXPECT_THAT(ShellJoin(command.argv),
                HasSubstr(" --tls-certificate /etc/lamina/node.pem --tls-key /etc/lamina/node.key "
                          "--tls-ca /etc/lamina/ca.pem"));
  }
}

TEST_F(ClusterOpsTest, LocalHosts) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1"})
    EXPECT_TRUE(IsLocalHost(host)) << host;
  for (const char* host : {"192.0.2.1", "mem0.example", "2001:db8::1"})
    EXPECT_FALSE(IsLocalHost(host)) << host;
  EXPECT_EQ(CommandOnHost(config_, "localhost", "true").front(), "/bin/sh");
  EXPECT_TRUE(IsLocalHost(AliasOfThisMachine())) << AliasOfThisMachine();
  config_.ssh = "ssh -p 22";
  EXPECT_EQ(
      CommandOnHost(config_, "mem0.example", "echo 'a b'"),
      (std::vector<std::string>{"ssh", "-p", "22", "mem0.example", "sh -c 'echo '\\''a b'\\'''"}));
}

TEST_F(ClusterOpsTest, UpStatusDown) {
  const Status up = Up();
  ASSERT_TRUE(up.ok()) << up << out_.str();
  const std::vector<DaemonRecord> records = Records();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[3].name, kManagerName);
  for (const DaemonRecord& daemon : records) {
    EXPECT_TRUE(Runs(daemon)) << daemon.name;
    // The fake manager serves without its nodes: they may come to their first line later.
    const auto has_spoken = [&] {
      return ReadFile(daemon.log).find(daemon.name + ": ") != std::string::npos;
    };
    EXPECT_TRUE(testing::AwaitTrue(has_spoken, Deadline::After(std::chrono::seconds(20))))
        << daemon.log << ": " << ReadFile(daemon.log);
  }
  EXPECT_THAT(out_.str(), HasSubstr("serving fake on http://127.0.0.1:"));

  std::ostringstream table, json;
  EXPECT_TRUE(ClusterStatus(config_, false, table));
  EXPECT_THAT(table.str(), HasSubstr("250 / 1000 (25%)"));
  EXPECT_THAT(table.str(), HasSubstr("2 running, 1 waiting; 4 preemptions"));
  EXPECT_TRUE(ClusterStatus(config_, true, json));
  EXPECT_TRUE(nlohmann::json::parse(json.str())["serving"]);

  EXPECT_TRUE(Down().ok()) << out_.str();
  for (const DaemonRecord& daemon : records) EXPECT_FALSE(Runs(daemon)) << daemon.name;
  EXPECT_TRUE(Records().empty());
}

TEST_F(ClusterOpsTest, UpTwiceIsRefusedAndChangesNothing) {
  ASSERT_TRUE(Up().ok()) << out_.str();
  const std::vector<DaemonRecord> before = Records();
  const Status again = Up();
  EXPECT_EQ(again.code(), StatusCode::kTryAgain);
  EXPECT_THAT(again.message(),
              HasSubstr("already up: m0 of cluster 'test' runs on 127.0.0.1 with pid " +
                        std::to_string(before[0].process.pid)));
  EXPECT_THAT(again.message(), HasSubstr("lamina cluster down " + options_.config_path));
  const std::vector<DaemonRecord> after = Records();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(after[i].process == before[i].process && Runs(before[i]));
  EXPECT_TRUE(Down().ok());
}

TEST_F(ClusterOpsTest, UpStartsOnlyWhatDoesNotRun) {
  ASSERT_TRUE(Up().ok()) << out_.str();
  for (const std::string victim : {"m0", kManagerName}) {
    const std::vector<DaemonRecord> before = Records();
    const auto dead = std::ranges::find(before, victim, &DaemonRecord::name);
    kill(dead->process.pid, SIGKILL);
    ASSERT_TRUE(testing::AwaitTrue([&] { return !Runs(*dead); },
                                   Deadline::After(std::chrono::seconds(10))));
    out_.str("");
    const Status again = Up();
    ASSERT_TRUE(again.ok()) << again << out_.str();
    EXPECT_THAT(out_.str(), HasSubstr("started " + victim + " on"));
    EXPECT_THAT(out_.str(), HasSubstr("c0 runs on 127.0.0.1 already"));
    const std::vector<DaemonRecord> after = Records();
    ASSERT_EQ(after.size(), before.size());
    for (const DaemonRecord& daemon : after) {
      EXPECT_TRUE(Runs(daemon)) << daemon.name;
      const auto same = std::ranges::find(before, daemon.name, &DaemonRecord::name);
      EXPECT_EQ(same->process == daemon.process, daemon.name != victim) << daemon.name;
    }
  }
  EXPECT_TRUE(Down().ok());
  EXPECT_TRUE(Records().empty());
}

TEST_F(ClusterOpsTest, DownTwiceIsFine) {
  ASSERT_TRUE(Up().ok()) << out_.str();
  EXPECT_TRUE(Down().ok());
  out_.str("");
  EXPECT_TRUE(Down().ok());
  EXPECT_EQ(out_.str(), "nothing to stop: cluster 'test' is not up\n");
}

TEST_F(ClusterOpsTest, DownStopsExactlyWhatUpStarted) {
  Result<ChildProcess> stranger =
      ChildProcess::Spawn({{options_.bin_dir + "/lamina-memory-node", "--name", "m0", "--listen",
                            "127.0.0.1:" + std::to_string(FreePort())},
                           {},
                           ""});
  ASSERT_TRUE(stranger.ok()) << stranger.status();
  ASSERT_TRUE(Up().ok()) << out_.str();
  EXPECT_TRUE(Down().ok());
  EXPECT_TRUE(stranger->running());
}

TEST_F(ClusterOpsTest, APidThatIsUsedAgainIsLeftAlone) {
  Result<ChildProcess> stranger = ChildProcess::Spawn({{"sleep", "60"}, {}, ""});
  ASSERT_TRUE(stranger.ok()) << stranger.status();
  ProcessId id = *FindProcess(stranger->pid());
  id.start_time -= 1;  // the record is of an earlier process with this pid
  {
    const Result<ClusterStateFile> file = ClusterStateFile::Open("test");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(
        file->Write({"test", options_.config_path, {{"m0", "127.0.0.1", id, "/nonexistent"}}})
            .ok());
  }
  EXPECT_TRUE(Down().ok());
  EXPECT_THAT(out_.str(), HasSubstr("not running any more: m0"));
  EXPECT_TRUE(stranger->running());
  EXPECT_TRUE(Records().empty());
}

TEST_F(ClusterOpsTest, StaleRecordsDoNotPreventUp) {
  ASSERT_TRUE(Up().ok()) << out_.str();
  for (const DaemonRecord& daemon : Records()) kill(daemon.process.pid, SIGKILL);
  const Deadline deadline = Deadline::After(std::chrono::seconds(10));
  for (const DaemonRecord& daemon : Records()) {
    while (Runs(daemon) && !deadline.Passed()) usleep(1000);
  }
  std::ostringstream report;
  EXPECT_FALSE(ClusterStatus(config_, false, report));
  EXPECT_THAT(report.str(), HasSubstr("ended"));
  const Status again = Up();
  EXPECT_TRUE(again.ok()) << again;
  EXPECT_TRUE(Down().ok());
}

TEST_F(ClusterOpsTest, ADaemonThatDiesIsReportedWithItsLogAndNothingStays) {
  config_.env = {{"FAKE_FAIL", "c0"}};
  const Status status = Up();
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_THAT(status.message(), HasSubstr("c0 on 127.0.0.1 ended; its log " + config_.log_dir +
                                          "/c0.log ends with:"));
  EXPECT_THAT(status.message(), HasSubstr("c0 has no wish to live"));
  EXPECT_TRUE(Records().empty());
  for (const NodeConfig& node : config_.nodes) {
    EXPECT_FALSE(CanConnect(node.host, node.port, std::chrono::seconds(1)))
        << node.name << " still runs";
  }
}

TEST_F(ClusterOpsTest, AMissingProgramIsReported) {
  std::filesystem::remove(options_.bin_dir + "/lamina-compute-node");
  const Status status = Up();
  EXPECT_THAT(status.message(), HasSubstr("lamina-compute-node"));
  EXPECT_THAT(status.message(), HasSubstr("No such file or directory"));
  EXPECT_TRUE(Records().empty());
}

TEST_F(ClusterOpsTest, ADeafDaemonIsKilled) {
  config_.env = {{"FAKE_IGNORE_TERM", "m1"}};
  ASSERT_TRUE(Up().ok()) << out_.str();
  const std::vector<DaemonRecord> records = Records();
  options_.grace = std::chrono::seconds(1);
  EXPECT_TRUE(Down().ok());
  EXPECT_THAT(out_.str(), HasSubstr("killed m1 on 127.0.0.1"));
  for (const DaemonRecord& daemon : records) EXPECT_FALSE(Runs(daemon)) << daemon.name;
}

TEST_F(ClusterOpsTest, NodesAlone) {
  options_.with_manager = false;
  ASSERT_TRUE(Up().ok()) << out_.str();
  EXPECT_EQ(Records().size(), 3u);
  EXPECT_THAT(out_.str(), HasSubstr("m1 listens on 127.0.0.1:"));
  std::ostringstream json;
  EXPECT_FALSE(ClusterStatus(config_, true, json));
  const nlohmann::json report = nlohmann::json::parse(json.str());
  EXPECT_FALSE(report["serving"]);
  ASSERT_EQ(report["processes"].size(), 3u);
  EXPECT_TRUE(report["processes"][2]["running"]);
  EXPECT_TRUE(Down().ok());
}

TEST_F(ClusterOpsTest, InterruptionTakesEverythingBack) {
  int questions = 0;
  options_.interrupted = [&] { return ++questions > 3; };
  EXPECT_EQ(Up().code(), StatusCode::kTryAgain);
  EXPECT_THAT(out_.str(), HasSubstr("stopped m0 on 127.0.0.1"));
  EXPECT_TRUE(Records().empty());
}

TEST_F(ClusterOpsTest, AnotherServerOnThePortIsNotTakenForOurs) {
  Result<ChildProcess> other =
      ChildProcess::Spawn({{options_.bin_dir + "/lamina-memory-node", "--name", "x", "--listen",
                            "127.0.0.1:" + std::to_string(config_.http_port)},
                           {},
                           folder_.path() + "/log"});
  ASSERT_TRUE(other.ok());
  const Deadline deadline = Deadline::After(std::chrono::seconds(10));
  while (!CanConnect("127.0.0.1", config_.http_port, std::chrono::seconds(1)) && !deadline.Passed())
    std::this_thread::yield();
  const Status status = Up();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("something else listens on http://127.0.0.1:"));
  EXPECT_TRUE(Records().empty());
}

TEST_F(ClusterOpsTest, DryRunsRunNothing) {
  options_.dry_run = true;
  EXPECT_TRUE(Up().ok());
  EXPECT_THAT(out_.str(),
              HasSubstr("# m0 on 127.0.0.1: lamina-memory-node --name m0 --listen 127.0.0.1:"));
  EXPECT_THAT(out_.str(), HasSubstr("lamina serve --cluster"));
  EXPECT_TRUE(Records().empty());
  EXPECT_FALSE(std::filesystem::exists(config_.log_dir));

  options_.dry_run = false;
  ASSERT_TRUE(Up().ok()) << out_.str();
  options_.dry_run = true;
  out_.str("");
  EXPECT_TRUE(Down().ok());
  for (const DaemonRecord& daemon : Records()) {
    EXPECT_THAT(out_.str(), HasSubstr("kill -TERM " + std::to_string(daemon.process.pid)));
    EXPECT_TRUE(Runs(daemon)) << daemon.name;
  }
  options_.dry_run = false;
  EXPECT_TRUE(Down().ok());
}

TEST_F(ClusterOpsTest, OnlyTheManagerGetsTheApiKeyAndNoCommandLineHasIt) {
  config_.env = {{"LAMINA_API_KEY", "open-sesame"}, {"FAKE_NOTE", "for all"}};
  options_.dry_run = true;
  EXPECT_TRUE(Up().ok());
  EXPECT_THAT(out_.str(), Not(HasSubstr("open-sesame")));
  EXPECT_THAT(out_.str(), HasSubstr("FAKE_NOTE"));
  options_.dry_run = false;
  for (const DaemonCommand& daemon : DaemonCommands(config_, "/c.yaml", true))
    EXPECT_THAT(StartScript(config_, daemon, "/bin"), Not(HasSubstr("open-sesame"))) << daemon.name;
  setenv("LAMINA_API_KEY", "of the shell", 1);
  const Status up = Up();
  unsetenv("LAMINA_API_KEY");
  ASSERT_TRUE(up.ok()) << up << out_.str();
  for (const DaemonRecord& daemon : Records()) {
    const std::string environment =
        ReadFile("/proc/" + std::to_string(daemon.process.pid) + "/environ");
    EXPECT_THAT(environment, HasSubstr("FAKE_NOTE=for all"));
    if (daemon.name == kManagerName) {
      EXPECT_THAT(environment, HasSubstr("LAMINA_API_KEY=open-sesame"));
    } else {
      EXPECT_THAT(environment, Not(HasSubstr("LAMINA_API_KEY"))) << daemon.name;
    }
  }
  EXPECT_TRUE(Down().ok());
}

TEST_F(ClusterOpsTest, UpStartsAManagerThatDiedAgain) {
  ASSERT_TRUE(Up().ok()) << out_.str();
  const std::vector<DaemonRecord> before = Records();
  Crash(kManagerName);
  out_.str("");
  const Status again = Up();
  ASSERT_TRUE(again.ok()) << again << out_.str();
  EXPECT_THAT(out_.str(), HasSubstr("m0 runs on 127.0.0.1 already, pid " +
                                    std::to_string(before[0].process.pid)));
  const std::vector<DaemonRecord> after = Records();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(after[i].process == before[i].process && Runs(before[i])) << before[i].name;
  EXPECT_EQ(after[3].name, kManagerName);
  EXPECT_TRUE(Runs(after[3]));
  EXPECT_EQ(Up().code(), StatusCode::kTryAgain) << "now it is up";

  // What fails does not take the nodes with it, and what a YAML does not have is not left running
  // by the side.
  Crash(kManagerName);
  config_.env = {{"FAKE_FAIL", kManagerName}};
  EXPECT_FALSE(Up().ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(Runs(before[i])) << before[i].name;
  EXPECT_EQ(Records().size(), 3u);
  config_.env.clear();
  const NodeConfig m1 = config_.nodes.back();
  config_.nodes.pop_back();
  EXPECT_EQ(Up().code(), StatusCode::kTryAgain);
  config_.nodes.push_back(m1);
  EXPECT_TRUE(Down().ok());
  for (const DaemonRecord& daemon : before) EXPECT_FALSE(Runs(daemon)) << daemon.name;
}

TEST_F(ClusterOpsTest, AnInterruptionInTheLastMomentCounts) {
  options_.interrupted = [&] {
    return CanConnect("127.0.0.1", config_.http_port, std::chrono::seconds(1));
  };
  EXPECT_EQ(Up().code(), StatusCode::kTryAgain);
  EXPECT_THAT(out_.str(), Not(HasSubstr("serving fake")));
  EXPECT_TRUE(Records().empty());
}

TEST_F(ClusterOpsTest, AnotherClusterOnThePortIsNotTakenForOurs) {
  ASSERT_TRUE(Up().ok()) << out_.str();
  ClusterConfig other = config_;
  other.name = "other";
  other.nodes.pop_back();
  std::ostringstream table, json;
  EXPECT_FALSE(ClusterStatus(other, false, table));
  EXPECT_THAT(table.str(), HasSubstr("not up: another server answers on http://127.0.0.1:" +
                                     std::to_string(config_.http_port)));
  EXPECT_FALSE(ClusterStatus(other, true, json));
  EXPECT_FALSE(nlohmann::json::parse(json.str())["serving"]);
  EXPECT_TRUE(Down().ok());
}

TEST_F(ClusterOpsTest, ALogsTailIsOfTheLastRun) {
  ASSERT_TRUE(Up().ok()) << out_.str();
  EXPECT_TRUE(Down().ok());
  ASSERT_THAT(ReadFile(config_.log_dir + "/c0.log"), HasSubstr("c0: "));
  config_.env = {{"FAKE_FAIL", "c0"}};
  const Status status = Up();
  EXPECT_THAT(status.message(), HasSubstr("c0 has no wish to live"));
  const std::string tail = status.message().substr(status.message().find("ends with:"));
  EXPECT_EQ(tail.find("c0: "), tail.rfind("c0: ")) << tail;
  EXPECT_THAT(tail, Not(HasSubstr("--- "))) << tail;
}

TEST_F(ClusterOpsTest, AControllerElsewhereIsRefused) {
  config_.controller_host = "elsewhere.example";
  EXPECT_EQ(Up().code(), StatusCode::kInvalidArgument);
}

TEST_F(ClusterOpsTest, OnlyOneAtATime) {
  const Result<ClusterStateFile> held = ClusterStateFile::Open("test");
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(Up().code(), StatusCode::kTryAgain);
  EXPECT_EQ(Down().code(), StatusCode::kTryAgain);
}

TEST_F(ClusterOpsTest, ADamagedStateFileIsNamed) {
  ASSERT_TRUE(ClusterStateFile::Open("test").ok());
  const std::string path = folder_.path() + "/state/lamina/test/state.json";
  for (
      const char* text :
      {"", "{", "[]", R"({"cluster": "test", "config": "c", "daemons": [{"name": "m0"}]})",
       R"({"cluster": "test", "config": "c", "daemons": [{"name": "m0", "host": "h", "pid": 1, "start_time": 1, "log": ""}]})"}) {
    WriteFile(path, text);
    EXPECT_EQ(Down().code(), StatusCode::kCorrupt) << text;
    EXPECT_THAT(Down().message(), HasSubstr(path)) << text;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace lamina::testing
