// Nodes and managers that are paused, killed and started again: what can be served is served, what
// cannot says so, and nobody has to come and repair it by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <future>
#include <map>

#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace outage_test {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel = SourcePath("/models/tiny-stories");

// 24 tokens; "" if it is not answered with 200.
std::string Complete(const ServerProcess& server) {
  const json body = {{"prompt", "Once upon a time"}, {"max_tokens", 24}, {"temperature", 0}};
  const Result<HttpResponse> response = server.client().PostJson("/v1/completions", body.dump());
  if (!response.ok() || !response->ok()) return "";
  return json::parse(response->body)["choices"][0]["text"];
}

std::string StateOf(const ServerProcess& server, const std::string& name) {
  const json status = server.Status();
  if (!status.is_object()) return "";
  for (const json& node : status["nodes"]) {
    if (node["name"] == name) return node["state"];
  }
  return "";
}

bool IsZombie(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(stat, line);
  return line.find(") Z ") != std::string::npos;
}

// Where `lamina serve` says that its daemons' logs are.
std::string LogFolder(const ServerProcess& server) {
  const std::string output = server.output(), before = "logs in ";
  const size_t begin = output.find(before) + before.size();
  return output.substr(begin, output.find('\n', begin) - begin);
}

std::unique_ptr<ServerProcess> Serve(std::vector<std::string> arguments) {
  Result<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(std::move(arguments));
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? std::move(*server) : nullptr;
}

TEST(Outage, AManagerThatWasPausedForLongServesAgain) {
  const std::unique_ptr<ServerProcess> server = Serve({kModel, "--memory-nodes", "2"});
  ASSERT_NE(server, nullptr);
  const std::string expected = Complete(*server), logs = LogFolder(*server);
  ASSERT_NE(expected, "");
  server->process().Kill(SIGSTOP);
  const auto has_left = [&](const std::string& node) {
    return TailOfFile(logs + "/" + node + ".log", 50).find("session over") != std::string::npos;
  };
  const bool all_left =
      AwaitTrue([&] { return has_left("c0") && has_left("m0") && has_left("m1"); },
                Deadline::After(seconds(40)));
  server->process().Kill(SIGCONT);
  ASSERT_TRUE(all_left) << "nodes give a silent manager up";
  EXPECT_TRUE(AwaitTrue([&] { return server->Health() == 200 && Complete(*server) == expected; },
                        Deadline::After(seconds(30))))
      << server->Status().dump() << server->output();
  for (const char* node : {"c0", "m0", "m1"}) EXPECT_EQ(StateOf(*server, node), "ready");
}

TEST(Outage, ServeStartsKilledDaemonsAgain) {
  const std::unique_ptr<ServerProcess> server = Serve({kModel, "--memory-nodes", "2"});
  ASSERT_NE(server, nullptr);
  const std::string expected = Complete(*server);
  ASSERT_NE(expected, "");
  for (const char* node : {"m0", "c0"}) {
    const std::optional<pid_t> before = server->DaemonOf(node);
    ASSERT_TRUE(before.has_value());
    ASSERT_EQ(kill(*before, SIGKILL), 0);
    EXPECT_TRUE(
        AwaitTrue([&] { return StateOf(*server, node) != "ready"; }, Deadline::After(seconds(20))))
        << node;
    ASSERT_TRUE(
        AwaitTrue([&] { return StateOf(*server, node) == "ready"; }, Deadline::After(seconds(40))))
        << node << ": " << server->Status().dump() << server->output();
    EXPECT_NE(server->DaemonOf(node), before);
    EXPECT_EQ(server->Health(), 200);
    EXPECT_EQ(Complete(*server), expected) << node;
    const std::vector<pid_t> daemons = server->Daemons();
    EXPECT_EQ(daemons.size(), 3u);
    for (const pid_t daemon : daemons) EXPECT_FALSE(IsZombie(daemon)) << daemon;
  }
}

// Daemons that stand on their own, c0 and m0, m1, and managers of them.
class OutageOfACluster : public ::testing::Test {
 protected:
  void SetUp() override {
    ports_["http"] = FreePort();
    for (const char* node : {"c0", "m0", "m1"}) {
      ports_[node] = FreePort();
      StartDaemon(node);
    }
    WriteConfig("20s");
  }

  void WriteConfig(const std::string& start_timeout) const {
    std::ofstream(config())
        << "version: 1\ncluster: {name: outage, http_port: " << ports_.at("http") << "}\nnodes:\n"
        << "  - {name: c0, role: compute, host: 127.0.0.1, port: " << ports_.at("c0") << "}\n"
        << "  - {name: m0, role: memory, host: 127.0.0.1, port: " << ports_.at("m0")
        << ", memory: 16MiB, threads: 1}\n"
        << "  - {name: m1, role: memory, host: 127.0.0.1, port: " << ports_.at("m1")
        << ", memory: 16MiB, threads: 1}\n"
        << "model: {path: " << kModel << "}\n"
        << "limits: {start_timeout: " << start_timeout << ", peer_timeout: 4s, step_timeout: 8s}\n";
  }
  std::string config() const { return folder_ / "cluster.yaml"; }

  void StartDaemon(const std::string& node) {
    ChildProcess::Options options;
    options.argv = {BinPath(node[0] == 'c' ? "/lamina-compute-node" : "/lamina-memory-node"),
                    "--name",
                    node,
                    "--threads",
                    "1",
                    "--listen",
                    "127.0.0.1:" + std::to_string(ports_[node])};
    if (node[0] == 'm') options.argv.insert(options.argv.end(), {"--memory", "16MiB"});
    options.log_path = folder_ / (node + ".log");
    Result<ChildProcess> daemon = ChildProcess::Spawn(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemons_.insert_or_assign(node, std::move(*daemon));
  }

  bool AwaitState(const ServerProcess& server, const std::string& node,
                  const std::string& state) const {
    return AwaitTrue([&] { return StateOf(server, node) == state; }, Deadline::After(seconds(40)));
  }

  const TemporaryFolder folder_;
  std::map<std::string, int> ports_;
  std::map<std::string, ChildProcess> daemons_;
};

TEST_F(OutageOfACluster, NodesThatWerePausedOrStartedAgainRejoin) {
  const std::unique_ptr<ServerProcess> server = Serve({"--cluster", config()});
  ASSERT_NE(server, nullptr);
  const std::string expected = Complete(*server);
  daemons_.at("m0").Kill(SIGSTOP);
  EXPECT_TRUE(AwaitState(*server, "m0", "lost"));
  EXPECT_EQ(Complete(*server), expected) << "m1 is left";
  daemons_.at("m0").Kill(SIGCONT);
  EXPECT_TRUE(AwaitState(*server, "m0", "ready")) << server->output();
  EXPECT_EQ(Complete(*server), expected);
  for (const char* node : {"m1", "c0"}) {
    daemons_.at(node).Stop(Deadline::After(Clock::duration::zero()));
    EXPECT_TRUE(
        AwaitTrue([&] { return StateOf(*server, node) != "ready"; }, Deadline::After(seconds(20))));
    StartDaemon(node);
    EXPECT_TRUE(AwaitState(*server, node, "ready")) << server->output();
    EXPECT_EQ(Complete(*server), expected);
  }
}

TEST_F(OutageOfACluster, AManagerWithoutHopeExitsAndSaysWhy) {
  WriteConfig("3s");
  const std::unique_ptr<ServerProcess> server = Serve({"--cluster", config()});
  ASSERT_NE(server, nullptr);
  daemons_.at("c0").Stop(Deadline::After(Clock::duration::zero()));
  EXPECT_TRUE(AwaitTrue([&] { return server->Health() == 503; }, Deadline::After(seconds(10))));
  EXPECT_THAT(server->Status().dump(), AllOf(HasSubstr("no compute node is left"),
                                             HasSubstr("waiting for nodes to come back")));
  ASSERT_TRUE(server->process().Wait(Deadline::After(seconds(30))));
  EXPECT_EQ(server->process().exit_description(), "exited with status 1");
  EXPECT_THAT(server->output(), AllOf(HasSubstr("no compute node is left"), HasSubstr("c0"),
                                      HasSubstr("no node came back that would do")));
}

// Whoever stops it should know, though nobody waits.
TEST_F(OutageOfACluster, AStopInAnOutageShowsInTheExitStatus) {
  WriteConfig("600s");
  const std::unique_ptr<ServerProcess> server = Serve({"--cluster", config()});
  ASSERT_NE(server, nullptr);
  daemons_.at("c0").Kill(SIGKILL);
  ASSERT_TRUE(AwaitTrue([&] { return server->Health() == 503; }, Deadline::After(seconds(20))));
  server->process().Kill(SIGTERM);
  ASSERT_TRUE(server->process().Wait(Deadline::After(seconds(60))));
  EXPECT_EQ(server->process().exit_description(), "exited with status 1");
  EXPECT_THAT(server->output(), HasSubstr("stopped while nothing could be served: no compute node "
                                          "is left: lost compute node c0"));
}

TEST_F(OutageOfACluster, AStopInAnOutageCutsOffWhatWaits) {
  WriteConfig("600s");
  const std::unique_ptr<ServerProcess> server =
      Serve({"--cluster", config(), "--drain-timeout", "1"});
  ASSERT_NE(server, nullptr);
  daemons_.at("c0").Kill(SIGKILL);
  ASSERT_TRUE(AwaitTrue([&] { return server->Health() == 503; }, Deadline::After(seconds(20))));
  std::future<std::string> answer =
      std::async(std::launch::async, [&] { return Complete(*server); });
  EXPECT_TRUE(AwaitTrue([&] { return server->Status()["scheduler"]["num_waiting"] == 1; },
                        Deadline::After(seconds(10))));
  server->process().Kill(SIGTERM);
  ASSERT_TRUE(server->process().Wait(Deadline::After(seconds(60))));
  EXPECT_EQ(server->process().exit_description(), "exited with status 1");
  EXPECT_EQ(answer.get(), "");
  EXPECT_THAT(server->output(), HasSubstr("1 request under way did not end well"));
}

// Of a node that is started again while requests wait for it.
TEST_F(OutageOfACluster, WhatWaitsIsAnswered) {
  const std::unique_ptr<ServerProcess> server = Serve({"--cluster", config()});
  ASSERT_NE(server, nullptr);
  const std::string expected = Complete(*server);
  for (const std::vector<std::string>& nodes : {std::vector<std::string>{"c0"}, {"m0", "m1"}}) {
    SCOPED_TRACE(nodes[0]);
    for (const std::string& node : nodes)
      daemons_.at(node).Stop(Deadline::After(Clock::duration::zero()));
    ASSERT_TRUE(AwaitTrue([&] { return server->Health() == 503; }, Deadline::After(seconds(20))));
    EXPECT_EQ(server->Status()["state"], "outage");
    std::future<std::string> answer =
        std::async(std::launch::async, [&] { return Complete(*server); });
    const char* const where = nodes[0] == "c0" ? "num_waiting" : "num_parked";
    EXPECT_TRUE(AwaitTrue([&] { return server->Status()["scheduler"][where] == 1; },
                          Deadline::After(seconds(10))))
        << server->Status().dump();
    StartDaemon(nodes[0]);
    EXPECT_EQ(answer.get(), expected);
    EXPECT_EQ(server->Health(), 200);
  }
}

TEST_F(OutageOfACluster, ASecondManagerIsToldSoAndTakesOverOnceTheFirstIsGone) {
  std::unique_ptr<ServerProcess> first = Serve({"--cluster", config()});
  ASSERT_NE(first, nullptr);
  const std::string expected = Complete(*first);
  WriteConfig("2s");
  const TimePoint start = Clock::now();
  const CommandOutput second =
      RunLamina({"serve", "--cluster", config(), "--port", std::to_string(FreePort())});
  EXPECT_EQ(second.exit_status, 1);
  EXPECT_LT(SecondsSince(start), 20);
  EXPECT_THAT(second.out,
              HasSubstr("memory node m0: it serves manager of cluster outage at 127.0.0.1:"))
      << "at once";
  EXPECT_THAT(second.err,
              AllOf(HasSubstr("memory node m0: it serves manager of cluster outage at 127.0.0.1:"),
                    HasSubstr("stop that manager"), Not(HasSubstr("did not answer"))));
  EXPECT_EQ(Complete(*first), expected) << "it did the first one no harm";
  WriteConfig("20s");
  first->process().Kill(SIGSTOP);  // its nodes notice that nobody is there any more
  const std::unique_ptr<ServerProcess> third = Serve({"--cluster", config()});
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(Complete(*third), expected);
  first->process().Kill(SIGCONT);
  EXPECT_TRUE(AwaitTrue([&] { return first->Health() == 503; }, Deadline::After(seconds(20))))
      << "its nodes serve another manager now";
  EXPECT_EQ(Complete(*third), expected) << "it did the new one no harm";
}

// While compute nodes are connected anew a memory node dies: its death is known to the new
// connections before anybody asks.
TEST(Outage, AMemoryNodeThatDiesRightAfterAComputeNodeGetsNoMoreRequests) {
  for (const int delay_ms : {10, 20, 30, 40}) {
    SCOPED_TRACE(delay_ms);
    Deployment deployment;
    deployment.num_compute_nodes = 2;
    deployment.peer_timeout = seconds(4);
    const Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
    ASSERT_TRUE(serving.ok()) << serving.status();
    Engine& engine = *(*serving)->engine;
    ASSERT_TRUE((*serving)->cluster->Kill("c1", SIGKILL).ok());
    AwaitTrue([] { return false; }, Deadline::After(milliseconds(delay_ms)));
    ASSERT_TRUE((*serving)->cluster->Kill("m1", SIGKILL).ok());
    const auto is_lost = [&](const std::string& name) {
      const std::vector<NodeStatus> nodes = engine.status().nodes;
      return std::ranges::any_of(nodes, [&](const NodeStatus& node) {
        return node.name == name && node.state == NodeState::kLost;
      });
    };
    ASSERT_TRUE(
        AwaitTrue([&] { return is_lost("c1") && is_lost("m1"); }, Deadline::After(seconds(20))));
    for (int i = 0; i < 10; ++i) {
      const Collector collector;
      ASSERT_TRUE(engine.Submit(GreedyRequest({1, 100 + i, 300}, 8), collector.sink()).ok());
      ASSERT_TRUE(collector.Wait(Deadline::After(seconds(30))));
      EXPECT_TRUE(collector.results()[0].error.ok()) << collector.results()[0].error;
    }
  }
}

}  // namespace outage_test
}  // namespace lamina::testing
