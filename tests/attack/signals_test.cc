// Signals as service managers, batch systems, container runtimes and terminals send them: to one
// process, or to all of them at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <regex>

#include "tests/support/free_port.h"
#include "tests/support/http_fixture.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace signals_test {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kModel = SourcePath("/models/tiny-stories");

// What `lamina serve` keeps in the temporary directory.
std::vector<std::string> LogFolders(const std::string& temporary) {
  std::vector<std::string> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(temporary)) {
    if (entry.is_directory()) folders.push_back(entry.path().filename().string());
  }
  return folders;
}

bool AllEnded(const std::vector<pid_t>& pids) {
  return std::none_of(pids.begin(), pids.end(), Runs);
}

// Streams that run: each has sent its first token.
class Streams {
 public:
  Streams(int port, int count) {
    const json request = {{"prompt", "Once upon a time"},
                          {"max_tokens", 200},
                          {"temperature", 0},
                          {"stream", true},
                          {"ignore_eos", true}};
    for (int i = 0; i < count; ++i) {
      streams_.push_back(std::make_unique<ClientConnection>(static_cast<uint16_t>(port)));
      streams_.back()->SendRequest("POST", "/v1/completions", request.dump());
    }
    for (const auto& stream : streams_) running_ += stream->ReceiveUntil("\"text\"");
  }

  int running() const { return running_; }
  int NumComplete() {
    return static_cast<int>(std::ranges::count_if(streams_, [](const auto& stream) {
      return stream->ReceiveUntil("\"finish_reason\":\"length\"");
    }));
  }

 private:
  std::vector<std::unique_ptr<ClientConnection>> streams_;
  int running_ = 0;
};

// A folder for temporary files of the programs that the test starts.
class Signals : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1);
    if (const char* old = std::getenv("TMPDIR"); old != nullptr) old_temporary_ = old;
    fs::create_directories(temporary());
    setenv("TMPDIR", temporary().c_str(), 1);
  }
  void TearDown() override {
    if (old_temporary_) setenv("TMPDIR", old_temporary_->c_str(), 1);
    if (!old_temporary_) unsetenv("TMPDIR");
  }

  std::string temporary() const { return folder_ / "temporary"; }

  // A cluster of one compute and two memory nodes.
  std::string WriteConfig(const std::string& limits) const {
    std::ofstream file(folder_ / "cluster.yaml");
    file << "version: 1\ncluster: {name: signals, http_port: " << port_ << "}\nnodes:\n"
         << "  - {name: c0, role: compute, host: 127.0.0.1, port: " << FreePort() << "}\n"
         << "  - {name: m0, role: memory, host: 127.0.0.1, port: " << FreePort()
         << ", memory: 16MiB, threads: 1}\n"
         << "  - {name: m1, role: memory, host: 127.0.0.1, port: " << FreePort()
         << ", memory: 16MiB, threads: 1}\n"
         << "model: {path: " << kModel << "}\nlimits: {" << limits << "}\n";
    return folder_ / "cluster.yaml";
  }

  static std::string ReadAll(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const TemporaryFolder folder_;
  const int port_ = FreePort();
  std::optional<std::string> old_temporary_;
};

// As systemd does it to a control group, and Slurm to the processes of a step.
TEST_F(Signals, SigtermToEveryProcessLetsStreamsEnd) {
  setenv("LAMINA_DRAIN_TIMEOUT", "120", 1);  // however slow this machine is at the moment
  Result<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start({kModel, "--memory-nodes", "2"});
  unsetenv("LAMINA_DRAIN_TIMEOUT");
  ASSERT_TRUE(server.ok()) << server.status();
  const std::vector<pid_t> daemons = (*server)->Daemons();
  ASSERT_EQ(daemons.size(), 3u);
  Streams streams((*server)->port(), 8);
  ASSERT_EQ(streams.running(), 8);
  for (const int signal : {SIGTERM, SIGINT}) {
    for (const pid_t daemon : daemons) kill(daemon, signal);
  }
  (*server)->process().Kill(SIGTERM);
  EXPECT_EQ(streams.NumComplete(), 8);
  ASSERT_TRUE((*server)->process().Wait(Deadline::After(seconds(60))));
  EXPECT_THAT((*server)->process().exit_description(), HasSubstr("status 0"))
      << (*server)->output();
  EXPECT_TRUE(AllEnded(daemons));
  EXPECT_THAT(LogFolders(temporary()), IsEmpty());
}

TEST_F(Signals, StreamsThatAreCutShowInTheExitStatus) {
  Result<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start({kModel, "--memory-nodes", "1", "--drain-timeout", "0"});
  ASSERT_TRUE(server.ok()) << server.status();
  Streams streams((*server)->port(), 4);
  ASSERT_EQ(streams.running(), 4);
  (*server)->process().Kill(SIGTERM);
  ASSERT_TRUE((*server)->process().Wait(Deadline::After(seconds(60))));
  EXPECT_EQ(streams.NumComplete(), 0);
  EXPECT_THAT((*server)->process().exit_description(), HasSubstr("status 1"));
  EXPECT_THAT((*server)->output(), HasSubstr("4 requests under way did not end well"));
}

// As when a container's processes are killed one after another: the manager learns of a node's end
// and of the signal at the same time. The compute node holds up the requests until then, and they
// wait for another memory node as long as they may.
TEST_F(Signals, RequestsThatWaitForALostNodeShowInTheExitStatus) {
  Result<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start({kModel, "--memory-nodes", "1", "--drain-timeout", "2"});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::optional<pid_t> c0 = (*server)->DaemonOf("c0"), m0 = (*server)->DaemonOf("m0");
  ASSERT_TRUE(c0.has_value() && m0.has_value());
  kill(*c0, SIGSTOP);
  std::vector<std::unique_ptr<ClientConnection>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<ClientConnection>(static_cast<uint16_t>((*server)->port())));
    clients.back()->SendRequest("POST", "/v1/completions", R"({"prompt": "Once upon a time"})");
  }
  const auto num_under_way = [&] {
    const json status = (*server)->Status();
    if (!status.is_object()) return 0;
    const json& scheduler = status["scheduler"];
    return scheduler["num_running"].get<int>() + scheduler["num_waiting"].get<int>();
  };
  ASSERT_TRUE(AwaitTrue([&] { return num_under_way() == 4; }, Deadline::After(seconds(8))));
  (*server)->process().Kill(SIGSTOP);
  kill(*m0, SIGKILL);
  (*server)->process().Kill(SIGTERM);
  (*server)->process().Kill(SIGCONT);
  for (const auto& client : clients) EXPECT_EQ(client->Receive().status, 503);
  ASSERT_TRUE((*server)->process().Wait(Deadline::After(seconds(60))));
  EXPECT_EQ((*server)->process().exit_description(), "exited with status 1");
  EXPECT_THAT((*server)->output(), HasSubstr("4 requests under way did not end well"));
}

// Daemons on their own, with the manager among them.
TEST_F(Signals, SigtermToADeployedClusterLetsStreamsEnd) {
  const std::string config = WriteConfig("drain_timeout: 120s");
  const CommandOutput up = RunLamina({"cluster", "up", config});
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  std::vector<pid_t> pids;
  static const std::regex kLine("started \\w+ on [^,]*, pid (\\d+)");
  for (std::sregex_iterator match(up.out.begin(), up.out.end(), kLine), end; match != end; ++match)
    pids.push_back(std::stoi((*match)[1]));
  ASSERT_EQ(pids.size(), 4u);
  Streams streams(port_, 8);
  EXPECT_EQ(streams.running(), 8);
  for (const pid_t pid : pids) kill(pid, SIGTERM);  // nodes first
  EXPECT_EQ(streams.NumComplete(), 8);
  EXPECT_TRUE(AwaitTrue([&] { return AllEnded(pids); }, Deadline::After(seconds(60))));
  RunLamina({"cluster", "down", config});
}

// A node that serves nobody has nothing to wait for; one with a manager goes at the end of its time
// and says that it was needed.
TEST_F(Signals, ANodeAloneLeavesInTime) {
  const std::string address = "127.0.0.1:" + std::to_string(FreePort());
  const std::vector<std::string> argv = {BinPath("/lamina-memory-node"),
                                         "--listen",
                                         address,
                                         "--memory",
                                         "16MiB",
                                         "--drain-timeout",
                                         "1"};
  Result<ChildProcess> idle = ChildProcess::Spawn({argv, {}, folder_ / "log"});
  ASSERT_TRUE(idle.ok()) << idle.status();
  ASSERT_TRUE(
      AwaitTrue([&] { return ReadAll(folder_ / "log").find("listening on") != std::string::npos; },
                Deadline::After(seconds(30))));
  idle->Kill(SIGTERM);
  ASSERT_TRUE(idle->Wait(Deadline::After(seconds(30))));
  EXPECT_EQ(idle->exit_description(), "exited with status 0");

  const std::string config = WriteConfig("drain_timeout: 1s");
  const CommandOutput up = RunLamina({"cluster", "up", config});
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  std::smatch match;
  ASSERT_TRUE(
      std::regex_search(up.out, match, std::regex("started m1 on [^,]*, pid (\\d+), log (\\S+)")))
      << up.out;
  const pid_t m1 = std::stoi(match[1]);
  kill(m1, SIGTERM);
  EXPECT_TRUE(AwaitTrue([&] { return !Runs(m1); }, Deadline::After(seconds(30))));
  EXPECT_THAT(ReadAll(match[2]),
              HasSubstr("goes on until the manager's session is over, for at most 3 s"));
  EXPECT_EQ(RunLamina({"cluster", "down", config}).exit_status, 0);
}

// The nodes that the manager waits for will not come for a minute.
TEST_F(Signals, EndAStartUpAtOnce) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string log = folder_ / ("log" + std::to_string(signal));
    Result<ChildProcess> manager = ChildProcess::Spawn(
        {{BinPath("/lamina"), "serve", "--cluster", WriteConfig("start_timeout: 60s")}, {}, log});
    ASSERT_TRUE(manager.ok()) << manager.status();
    ASSERT_TRUE(AwaitTrue([&] { return ReadAll(log).find("waiting up to") != std::string::npos; },
                          Deadline::After(seconds(30))))
        << ReadAll(log);
    manager->Kill(signal);
    EXPECT_TRUE(manager->Wait(Deadline::After(seconds(15))));
    EXPECT_EQ(manager->exit_description(), "exited with status 1");
    EXPECT_THAT(ReadAll(log), HasSubstr("stopped before the cluster served"));
  }
}

// A node that hangs before it listens.
TEST_F(Signals, EndTheStartUpOfALocalClusterAndLeaveNothing) {
  Result<ChildProcess> manager = ChildProcess::Spawn(
      {{BinPath("/lamina"), "serve", kModel, "--port", std::to_string(FreePort())},
       {},
       folder_ / "log"});
  ASSERT_TRUE(manager.ok()) << manager.status();
  const std::string path = "/proc/" + std::to_string(manager->pid()) + "/task/" +
                           std::to_string(manager->pid()) + "/children";
  std::vector<pid_t> daemons;
  const bool came = AwaitTrue(
      [&] {
        std::istringstream children(ReadAll(path));
        daemons = {std::istream_iterator<pid_t>(children), {}};
        std::erase_if(daemons, [](pid_t daemon) {  // still the manager's program
          return ReadAll("/proc/" + std::to_string(daemon) + "/cmdline").find("--name") ==
                 std::string::npos;
        });
        for (const pid_t daemon : daemons) kill(daemon, SIGSTOP);
        return daemons.size() == 3;
      },
      Deadline::After(seconds(30)));
  ASSERT_TRUE(came) << ReadAll(folder_ / "log");
  manager->Kill(SIGTERM);
  EXPECT_TRUE(manager->Wait(Deadline::After(seconds(15))));
  EXPECT_EQ(manager->exit_description(), "exited with status 1");
  EXPECT_TRUE(AllEnded(daemons));
  EXPECT_THAT(LogFolders(temporary()), IsEmpty());
}

TEST_F(Signals, SigkillOfTheManagerLeavesNothingBehindTheNextStart) {
  Result<std::unique_ptr<ServerProcess>> killed =
      ServerProcess::Start({kModel, "--memory-nodes", "1"});
  ASSERT_TRUE(killed.ok()) << killed.status();
  const std::vector<pid_t> daemons = (*killed)->Daemons();
  const std::vector<std::string> left = LogFolders(temporary());
  ASSERT_EQ(left.size(), 1u);
  fs::create_directories(temporary() + "/lamina-notour");  // nobody's: it may be anything
  (*killed)->process().Kill(SIGKILL);
  EXPECT_TRUE(AwaitTrue([&] { return AllEnded(daemons); }, Deadline::After(seconds(30))));
  EXPECT_EQ(LogFolders(temporary()).size(), 2u);

  Result<std::unique_ptr<ServerProcess>> next =
      ServerProcess::Start({kModel, "--memory-nodes", "1"});
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_FALSE(fs::exists(temporary() + "/" + left[0]));
  Result<std::unique_ptr<ServerProcess>> other =
      ServerProcess::Start({kModel, "--memory-nodes", "1"});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(LogFolders(temporary()).size(), 3u) << "the logs of a living manager stay";
}

}  // namespace signals_test
}  // namespace lamina::testing
