// What strangers can take: connections and memory. Attackers come from 127.0.0.2, which plays
// another machine, or from the honest client's own address.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "api/http_client.h"
#include "manager/process.h"
#include "tests/support/crowd.h"
#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"
#include "transport/control_channel.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;

constexpr size_t kManyConnections = 1'500;
constexpr size_t kMiB = size_t{1} << 20;
// Machines that run tests are busy: the median is held to what users feel, single answers only to
// what tells a wait from work.
constexpr auto kMedianHealth = milliseconds(100);
constexpr auto kSlowestHealth = seconds(3);
constexpr auto kFailover = seconds(5);  // what the manager has to reach its nodes in

bool MayBeMany() { return HasDescriptorsFor(2 * kManyConnections + 500); }

std::vector<std::string> Addresses() { return {"127.0.0.2", "127.0.0.1"}; }

// A memory node that may have few files open, as a process of its own.
class ControlPortUnderAttack : public ::testing::Test {
 protected:
  static constexpr int kDescriptors = 300;

  void SetUp() override {
    if (!MayBeMany()) GTEST_SKIP() << "this process may not have enough files open (ulimit -Hn)";
    port_ = static_cast<uint16_t>(FreePort());
    ChildProcess::Options options;
    options.argv = WithDescriptors(kDescriptors, {BinPath("/lamina-memory-node"), "--name", "m0",
                                                  "--listen", address(), "--memory", "16MiB"});
    options.log_path = folder_.path() + "/log";
    auto started = ChildProcess::Spawn(options);
    ASSERT_TRUE(started.ok()) << started.status();
    node_.emplace(*std::move(started));
    ASSERT_TRUE(Reach(seconds(60)).ok());
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // As a manager does it.
  Status Reach(Clock::duration patience = kFailover) const {
    return ConnectControl(address(), {.hello = "manager"}, Deadline::After(patience)).status();
  }

  void ExpectHonestPeersGetIn() {
    for (int i = 0; i < 3; ++i) {
      const Status reached = Reach();
      EXPECT_TRUE(reached.ok()) << reached;
    }
    EXPECT_TRUE(node_->running()) << node_->exit_description();
  }

  TemporaryFolder folder_;
  uint16_t port_ = 0;
  std::optional<ChildProcess> node_;
};

TEST_F(ControlPortUnderAttack, SilentConnectionsDelayNobody) {
  for (const std::string& from : Addresses()) {
    const Crowd silent(port_, kManyConnections, "", from);
    ExpectHonestPeersGetIn();
  }
}

TEST_F(ControlPortUnderAttack, GreetedConnectionsTakeNoMoreThanTheirShare) {
  // A challenge without a secret, and a hello, as transport/control_handshake.h has them: the
  // frame's head, then its payload.
  const auto frame = [](char type, const std::string& payload) {
    return std::string("LMNA\3\0", 6) + type + std::string(1, '\0') +
           static_cast<char>(payload.size()) + std::string(3, '\0') + payload;
  };
  const std::string greeting = frame(4, std::string(33, '\0')) + frame(1, "anybody");
  for (const std::string& from : Addresses()) {
    Crowd greeted(port_, kManyConnections, greeting, from);
    greeted.Push(Deadline::After(seconds(20)));
    ExpectHonestPeersGetIn();
    EXPECT_GT(greeted.NumAnswered("LMNA"), 100u) << "they were let in";
    EXPECT_TRUE(AwaitTrue([&] { return greeted.NumOpen() < 300; }, Deadline::After(seconds(30))))
        << greeted.NumOpen();
  }
}

// `lamina serve`, which serves on and answers as before whatever is done to it.
class HttpUnderAttack : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> arguments, int num_descriptors = 0) {
    if (!MayBeMany()) GTEST_SKIP() << "this process may not have enough files open (ulimit -Hn)";
    arguments.insert(arguments.begin(), {SourcePath("/models/tiny-stories"), "--memory-nodes", "1",
                                         "--compute-threads", "1"});
    auto started = ServerProcess::Start(arguments, num_descriptors);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    answer_ = Answer();
    ASSERT_FALSE(answer_.empty());
  }

  uint16_t port() const { return static_cast<uint16_t>(server_->port()); }
  size_t resident_bytes() const { return ResidentBytes(server_->process().pid()); }

  std::string Answer() const {
    const HttpClient client =
        *HttpClient::Create(server_->url(), {.api_key = api_key_, .ca_file = ""});
    const auto response = client.PostJson(
        "/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})");
    if (!response.ok() || response->status != 200) return "";
    return nlohmann::json::parse(response->body)["choices"][0]["text"].get<std::string>();
  }

  void ExpectHealthy() const {
    std::vector<Clock::duration> times;
    for (int i = 0; i < 21; ++i) {
      const TimePoint start = Clock::now();
      EXPECT_EQ(server_->Health(), 200);
      times.push_back(Clock::now() - start);
    }
    std::ranges::sort(times);
    EXPECT_LT(times[times.size() / 2], kMedianHealth);
    EXPECT_LT(times.back(), kSlowestHealth);
  }

  void ExpectServing() const {
    ExpectHealthy();
    EXPECT_EQ(Answer(), answer_);
  }

  std::string api_key_;
  std::string answer_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(HttpUnderAttack, IdleConnectionsKeepNobodyOut) {
  constexpr int kDescriptors = 400;
  ASSERT_NO_FATAL_FAILURE(Start({}, kDescriptors));
  if (IsSkipped()) return;
  const size_t before = resident_bytes();
  const Crowd others(port(), kManyConnections, "", "127.0.0.2");
  ExpectServing();
  const Crowd half_asked(port(), kManyConnections, "POST /v1/completions HTTP/1.1\r\nContent-Le");
  ExpectServing();
  EXPECT_LE(server_->NumOpenFiles(), static_cast<size_t>(kDescriptors) * 3 / 4 + 8)
      << "the reserve is kept";
  EXPECT_LT(resident_bytes(), before + 32 * kMiB);
}

// To connect compute nodes anew takes descriptors, which idle connections must not have.
TEST_F(HttpUnderAttack, IdleConnectionsDisturbNoReconnect) {
  ASSERT_NO_FATAL_FAILURE(Start({"--compute-nodes", "2"}, /*num_descriptors=*/200));
  if (IsSkipped()) return;
  const Crowd idle(port(), kManyConnections);
  const std::optional<pid_t> node = server_->DaemonOf("c1");
  ASSERT_TRUE(node);
  kill(*node, SIGKILL);
  EXPECT_TRUE(AwaitTrue([&] { return Answer() == answer_; }, Deadline::After(seconds(60))))
      << server_->output();
  ExpectServing();
}

std::string LongRequest(size_t announced_bytes, size_t sent_bytes) {
  return "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " +
         std::to_string(announced_bytes) + "\r\n\r\n" + std::string(sent_bytes, ' ');
}

TEST_F(HttpUnderAttack, WithoutTheKeyABodyCostsNothing) {
  const TemporaryFolder folder;
  api_key_ = "open-sesame";
  WriteFile(folder / "key", api_key_ + "\n");
  chmod((folder / "key").c_str(), 0600);
  ASSERT_NO_FATAL_FAILURE(Start({"--api-key-file", folder / "key"}));
  if (IsSkipped()) return;
  const size_t before = resident_bytes();
  constexpr size_t kConnections = 100;
  Crowd keyless(port(), kConnections, LongRequest(8 * kMiB, 4 * kMiB));
  EXPECT_TRUE(AwaitTrue([&] { return keyless.NumAnswered("HTTP/1.1 401 ") == kConnections; },
                        Deadline::After(seconds(60))))
      << keyless.NumAnswered("HTTP/1.1 401 ");
  ExpectServing();
  EXPECT_LT(resident_bytes(), before + 64 * kMiB);
}

TEST_F(HttpUnderAttack, BodiesThatDoNotEndTakeNoMoreThanTheirShare) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  if (IsSkipped()) return;
  const size_t before = resident_bytes();
  constexpr size_t kConnections = 60;
  {
    Crowd endless(port(), kConnections, LongRequest(7 * kMiB, 7 * kMiB - 1));
    endless.Push(Deadline::After(seconds(60)));
    EXPECT_GT(endless.NumAnswered("HTTP/1.1 503 "), 20u);
    ExpectServing();
    // 64 MiB of bodies, in strings that were made for 8 MiB each.
    EXPECT_LT(resident_bytes(), before + 160 * kMiB);
  }
  EXPECT_TRUE(AwaitTrue([&] { return resident_bytes() < before + 32 * kMiB; },
                        Deadline::After(seconds(30))))
      << resident_bytes() - before << " bytes were not given back";
  ExpectServing();
}

}  // namespace
}  // namespace lamina::testing
