// Nodes that die or hang while they serve: no request fails because of it, as long as nodes are
// left or come back in time, and all go on with the right tokens. recovery_test.cc kills memory
// nodes in every set-up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "manager/cluster_executor.h"
#include "tests/support/paths.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int kLong = 400;  // tokens: long enough that a node can die in the middle

GenerateRequest LongRequest(TokenId first) {
  GenerateRequest request = GreedyRequest({1, first, 300, 301}, kLong);
  request.ignore_eos = true;
  return request;
}

// `kind`: a transport; or a pipeline with several compute nodes, or "stages" of two with half of
// the layers each.
Deployment ShortTimeouts(const std::string& kind, int num_compute_nodes = 2) {
  Deployment deployment;
  if (kind == "stages") {
    deployment.pipeline_parallel_size = 2;
  } else if (kind == "tcp" || kind == "shm") {
    deployment.transport = kTransportKinds.Named(kind).value();
  } else {
    deployment.num_compute_nodes = num_compute_nodes;
    deployment.pipeline = kPipelineModes.Named(kind).value();
  }
  deployment.peer_timeout = seconds(2);
  deployment.step_timeout = seconds(8);
  return deployment;
}

// Gives up soon after nodes are lost, but not before it is known which nodes hang.
Deployment SoonGivenUp(Deployment deployment) {
  deployment.peer_timeout = seconds(1);
  deployment.start_timeout = seconds(5);
  return deployment;
}

std::vector<Collector> SubmitLong(Engine& engine, int n) {
  std::vector<Collector> collectors(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    Result<RequestId> id =
        engine.Submit(LongRequest(100 + i), collectors[static_cast<size_t>(i)].sink());
    EXPECT_TRUE(id.ok()) << id.status();
  }
  return collectors;
}

// What each request gives when nothing fails.
std::vector<std::vector<TokenId>> UndisturbedTokens(Engine& engine, int n) {
  std::vector<std::vector<TokenId>> tokens;
  for (const Collector& collector : SubmitLong(engine, n)) {
    EXPECT_TRUE(collector.Wait(Deadline::After(seconds(60))));
    tokens.push_back(collector.results()[0].tokens);
  }
  return tokens;
}

void AwaitTokens(const std::vector<Collector>& collectors, size_t count) {
  for (const Collector& collector : collectors)
    ASSERT_TRUE(collector.WaitForTokens(count, Deadline::After(seconds(30))));
}

// Each ends as if nothing had happened.
void ExpectWhole(const std::vector<Collector>& collectors,
                 const std::vector<std::vector<TokenId>>& expected) {
  for (size_t i = 0; i < collectors.size(); ++i) {
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(seconds(60)))) << "request " << i << " hangs";
    const Generated got = collectors[i].results()[0];
    EXPECT_TRUE(got.error.ok()) << "request " << i << ": " << got.error;
    EXPECT_EQ(got.tokens, expected[i]) << "request " << i;
  }
}

// Each ends with an error that says why.
void ExpectFailed(const std::vector<Collector>& collectors, const std::string& why) {
  for (const Collector& collector : collectors) {
    ASSERT_TRUE(collector.Wait(Deadline::After(seconds(60))));
    EXPECT_EQ(collector.results()[0].reason, FinishReason::kError);
    EXPECT_THAT(collector.results()[0].error.message(), HasSubstr(why));
  }
}

void ExpectNoneOver(const std::vector<Collector>& collectors) {
  for (const Collector& collector : collectors)
    EXPECT_FALSE(collector.results()[0].finished) << collector.results()[0].error;
}

bool AwaitOutage(Engine& engine) {
  return AwaitTrue([&] { return !engine.status().serving; }, Deadline::After(seconds(30)));
}

NodeStatus StatusOf(Engine& engine, const std::string& name) {
  for (const NodeStatus& node : engine.status().nodes) {
    if (node.name == name) return node;
  }
  return {};
}

class FailureTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Serve(const Deployment& deployment) {
    Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
    ASSERT_TRUE(serving.ok()) << serving.status();
    serving_ = std::move(*serving);
  }
  Engine& engine() { return *serving_->engine; }
  LocalCluster& cluster() { return *serving_->cluster; }

  std::vector<Collector> SubmitMany(int n) { return SubmitLong(engine(), n); }

  std::vector<std::vector<TokenId>> Undisturbed(int n) { return UndisturbedTokens(engine(), n); }
  NodeStatus Node(const std::string& name) { return StatusOf(engine(), name); }

  std::unique_ptr<Serving> serving_;
};

TEST_P(FailureTest, WhatWasOnAKilledMemoryNodeStartsAgainElsewhere) {
  Serve(ShortTimeouts(GetParam()));
  const std::vector<std::vector<TokenId>> expected = Undisturbed(8);
  const std::vector<Collector> collectors = SubmitMany(8);
  ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 20));
  EXPECT_EQ(Node("m0").num_sequences, 4)
      << "placement by load puts half of the requests on each node";
  ASSERT_TRUE(cluster().Kill("m0", SIGKILL).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(collectors, expected));
  EXPECT_TRUE(engine().status().serving);
  EXPECT_EQ(Node("m0").state, NodeState::kLost);
  EXPECT_EQ(Node("m1").state, NodeState::kReady);
  EXPECT_EQ(Undisturbed(2), std::vector(expected.begin(), expected.begin() + 2))
      << "the node that is left serves";
  EXPECT_EQ(AwaitNoTokens(engine(), Deadline::After(seconds(10))), "");
}

TEST_P(FailureTest, AHangingMemoryNodeIsGivenUpWithinThePeerTimeout) {
  Serve(ShortTimeouts(GetParam()));
  const std::vector<std::vector<TokenId>> expected = Undisturbed(4);
  const std::vector<Collector> collectors = SubmitMany(4);
  ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 20));
  EXPECT_EQ(Node("m1").num_sequences, 2);
  const TimePoint start = Clock::now();
  ASSERT_TRUE(cluster().Kill("m1", SIGSTOP).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(collectors, expected));
  EXPECT_LT(SecondsSince(start), 15);
  EXPECT_TRUE(AwaitTrue([&] { return Node("m1").state == NodeState::kLost; },
                        Deadline::After(seconds(10))));
  EXPECT_TRUE(engine().status().serving);
}

TEST_P(FailureTest, WithoutMemoryNodesRequestsWaitUntilOneComesBack) {
  Serve(ShortTimeouts(GetParam()));
  const std::vector<std::vector<TokenId>> expected = Undisturbed(5);
  std::vector<Collector> collectors = SubmitMany(4);
  ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 5));
  ASSERT_TRUE(cluster().Kill("m0", SIGKILL).ok());
  ASSERT_TRUE(cluster().Kill("m1", SIGKILL).ok());
  ASSERT_TRUE(AwaitOutage(engine()));
  const EngineStatus status = engine().status();
  EXPECT_THAT(status.detail, HasSubstr("no memory node is left"));
  EXPECT_FALSE(status.given_up);
  EXPECT_EQ(status.scheduler.num_parked, 4);
  Collector late;
  ASSERT_TRUE(engine().Submit(LongRequest(104), late.sink()).ok()) << "it waits as well";
  collectors.push_back(late);
  EXPECT_EQ(engine().status().scheduler.num_parked, 5);
  ExpectNoneOver(collectors);
  ASSERT_TRUE(cluster().Restart("m1").ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(collectors, expected));
  EXPECT_TRUE(engine().status().serving);
  EXPECT_EQ(AwaitNoTokens(engine(), Deadline::After(seconds(10))), "");
}

TEST_P(FailureTest, WithoutMemoryNodesForGoodItGivesUpAndSaysWhy) {
  Serve(SoonGivenUp(ShortTimeouts(GetParam())));
  const std::vector<Collector> collectors = SubmitMany(4);
  ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 5));
  ASSERT_TRUE(cluster().Kill("m0", SIGKILL).ok());
  ASSERT_TRUE(cluster().Kill("m1", SIGKILL).ok());
  ASSERT_TRUE(AwaitOutage(engine()));
  ASSERT_NO_FATAL_FAILURE(ExpectFailed(collectors, "no memory node is left"));
  EXPECT_TRUE(engine().status().given_up);
  EXPECT_THAT(engine().status().detail, HasSubstr("no node came back that would do, within 5 s"));
  const Collector late;
  EXPECT_EQ(engine().Submit(LongRequest(100), late.sink()).status().code(), StatusCode::kPeerLost);
}

TEST_P(FailureTest, NodesServeTheNextManagerWhenOneIsGone) {
  Serve(ShortTimeouts(GetParam()));
  const std::vector<std::vector<TokenId>> expected = Undisturbed(2);
  const std::vector<Collector> abandoned = SubmitMany(4);
  ASSERT_TRUE(abandoned[0].WaitForTokens(5, Deadline::After(seconds(30))));
  serving_->engine.reset();  // in the middle of a step
  ClusterConfig config = cluster().config();
  config.model_path = Deployment().model;
  const Result<ModelConfig> model = ModelConfig::Load(config.model_path);
  ASSERT_TRUE(model.ok());
  ASSERT_TRUE(ResolveConfig(config, *model).ok());
  Result<std::unique_ptr<ClusterExecutor>> executor = ClusterExecutor::Connect(config, *model, {});
  ASSERT_TRUE(executor.ok()) << executor.status();
  serving_->engine = std::make_unique<ServingEngine>(ServingEngineOptions::Of(config, *model),
                                                     std::move(*executor));
  EXPECT_EQ(AwaitNoTokens(engine(), Deadline::After(seconds(10))), "")
      << "KV of the manager before";
  EXPECT_EQ(Undisturbed(2), expected);
}

class OneComputeNode : public FailureTest {};

TEST_P(OneComputeNode, IsWaitedForWhenItIsKilled) {
  Serve(ShortTimeouts(GetParam()));
  const std::vector<std::vector<TokenId>> expected = Undisturbed(5);
  std::vector<Collector> collectors = SubmitMany(4);
  ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 5));
  ASSERT_TRUE(cluster().Kill("c0", SIGKILL).ok());
  ASSERT_TRUE(AwaitOutage(engine()));
  EXPECT_THAT(engine().status().detail, HasSubstr("c0"));
  EXPECT_FALSE(engine().status().given_up);
  EXPECT_EQ(Node("c0").state, NodeState::kLost);
  Collector late;
  ASSERT_TRUE(engine().Submit(LongRequest(104), late.sink()).ok()) << "it waits as well";
  collectors.push_back(late);
  ExpectNoneOver(collectors);
  ASSERT_TRUE(cluster().Restart("c0").ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(collectors, expected));
  EXPECT_TRUE(engine().status().serving);
  EXPECT_EQ(AwaitNoTokens(engine(), Deadline::After(seconds(10))), "");
}

TEST_P(OneComputeNode, IsNoticedWhenItHangsAndGoesOnWhenItDoes) {
  Serve(ShortTimeouts(GetParam()));
  const std::vector<std::vector<TokenId>> expected = Undisturbed(2);
  const std::vector<Collector> collectors = SubmitMany(2);
  ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 5));
  ASSERT_TRUE(cluster().Kill("c0", SIGSTOP).ok());
  ASSERT_TRUE(AwaitOutage(engine()));
  EXPECT_THAT(engine().status().detail, HasSubstr("c0"));
  ExpectNoneOver(collectors);
  ASSERT_TRUE(cluster().Kill("c0", SIGCONT).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(collectors, expected));
}

TEST_P(OneComputeNode, EndsEverythingWithAReasonWhenItIsLostForGood) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    SCOPED_TRACE(signal);
    Serve(SoonGivenUp(ShortTimeouts(GetParam())));
    const std::vector<Collector> collectors = SubmitMany(4);
    ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 5));
    ASSERT_TRUE(cluster().Kill("c0", signal).ok());
    ASSERT_NO_FATAL_FAILURE(ExpectFailed(collectors, "c0"));
    EXPECT_FALSE(engine().status().serving);
    EXPECT_TRUE(engine().status().given_up);
  }
}

INSTANTIATE_TEST_SUITE_P(Clusters, OneComputeNode, ::testing::Values("tcp", "shm"),
                         [](const auto& info) { return info.param; });

class SeveralComputeNodes : public FailureTest {
 protected:
  // All of them in the middle, when `disturb` is called.
  void ExpectAllGoOn(const std::vector<std::vector<TokenId>>& expected,
                     const std::function<void()>& disturb) {
    const std::vector<Collector> collectors = SubmitMany(static_cast<int>(expected.size()));
    ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 20));
    disturb();
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(collectors, expected));
    EXPECT_TRUE(engine().status().serving);
    EXPECT_EQ(AwaitNoTokens(engine(), Deadline::After(seconds(10))), "");
  }
};

TEST_P(SeveralComputeNodes, TheOthersGoOnWhenOneIsKilled) {
  Serve(ShortTimeouts(GetParam(), 3));
  const std::vector<std::vector<TokenId>> expected = Undisturbed(6);
  ExpectAllGoOn(expected, [&] { ASSERT_TRUE(cluster().Kill("c1", SIGKILL).ok()); });
  EXPECT_EQ(Node("c1").state, NodeState::kLost);
  EXPECT_EQ(Node("c0").state, NodeState::kReady);
  ExpectAllGoOn(expected, [&] { ASSERT_TRUE(cluster().Kill("c0", SIGKILL).ok()); });
  EXPECT_EQ(Node("c0").state, NodeState::kLost);
  EXPECT_EQ(Node("c2").state, NodeState::kReady);
  ASSERT_TRUE(cluster().Kill("c2", SIGKILL).ok());
  ASSERT_TRUE(AwaitTrue([&] { return !engine().status().serving; }, Deadline::After(seconds(20))));
  EXPECT_THAT(engine().status().detail, HasSubstr("no compute node is left"));
  EXPECT_THAT(engine().status().detail, HasSubstr("c2"));
}

TEST_P(SeveralComputeNodes, TheOthersGoOnWhenOneHangs) {
  Serve(ShortTimeouts(GetParam()));
  ExpectAllGoOn(Undisturbed(4), [&] { ASSERT_TRUE(cluster().Kill("c0", SIGSTOP).ok()); });
  EXPECT_EQ(Node("c0").state, NodeState::kLost);
}

// The second is found lost while the nodes are reconnected, or just after.
TEST_P(SeveralComputeNodes, TheOthersGoOnWhenAComputeNodeAndAMemoryNodeDieTogether) {
  Deployment deployment = ShortTimeouts(GetParam(), 3);
  deployment.num_memory_nodes = 3;
  Serve(deployment);
  const std::vector<std::vector<TokenId>> expected = Undisturbed(6);
  ExpectAllGoOn(expected, [&] {
    ASSERT_TRUE(cluster().Kill("c2", SIGKILL).ok());
    ASSERT_TRUE(cluster().Kill("m0", SIGKILL).ok());
  });
  EXPECT_TRUE(AwaitTrue(
      [&] {
        return Node("m0").state == NodeState::kLost && Node("c2").state == NodeState::kLost &&
               Node("m1").state == NodeState::kReady;
      },
      Deadline::After(seconds(20))));
  EXPECT_EQ(Undisturbed(6), expected);
}

INSTANTIATE_TEST_SUITE_P(Pipelines, SeveralComputeNodes,
                         ::testing::Values("none", "fixed", "rotational", "auto"),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Clusters, FailureTest,
                         ::testing::Values("tcp", "shm", "rotational", "stages"),
                         [](const auto& info) { return info.param; });

Deployment SharedAmong(int stages, int ranks) {
  Deployment deployment;
  deployment.pipeline_parallel_size = stages;
  deployment.tensor_parallel_size = ranks;
  deployment.peer_timeout = seconds(2);
  deployment.step_timeout = seconds(8);
  return deployment;
}

// Of a model that no compute node holds alone each is needed.
class SharedModelFailureTest : public ::testing::TestWithParam<std::tuple<int, int, const char*>> {
};

TEST_P(SharedModelFailureTest, RequestsWaitForAnyComputeNodeThatIsLost) {
  const auto [stages, ranks, victim] = GetParam();
  for (const int signal : {SIGKILL, SIGSTOP}) {
    SCOPED_TRACE(signal);
    const Result<std::unique_ptr<Serving>> serving = Serving::Create(SharedAmong(stages, ranks));
    ASSERT_TRUE(serving.ok()) << serving.status();
    Engine& engine = *(*serving)->engine;
    const std::vector<std::vector<TokenId>> expected = UndisturbedTokens(engine, 4);
    const std::vector<Collector> collectors = SubmitLong(engine, 4);
    ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 5));
    ASSERT_TRUE((*serving)->cluster->Kill(victim, signal).ok());
    ASSERT_TRUE(AwaitOutage(engine));
    EXPECT_THAT(engine.status().detail, HasSubstr(victim));
    ExpectNoneOver(collectors);
    const Status back = signal == SIGKILL ? (*serving)->cluster->Restart(victim)
                                          : (*serving)->cluster->Kill(victim, SIGCONT);
    ASSERT_TRUE(back.ok()) << back;
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(collectors, expected));
    EXPECT_TRUE(engine.status().serving);
    EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, SharedModelFailureTest,
                         ::testing::Values(std::tuple(3, 1, "c0"), std::tuple(3, 1, "c1"),
                                           std::tuple(3, 1, "c2"), std::tuple(1, 2, "c0"),
                                           std::tuple(1, 2, "c1"), std::tuple(2, 2, "c3")));

TEST(SharedModel, TheLossOfAComputeNodeForGoodEndsEverythingAndNamesIt) {
  for (const auto& [stages, ranks] : {std::pair(3, 1), std::pair(1, 2)}) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      SCOPED_TRACE(std::to_string(stages) + " stages, signal " + std::to_string(signal));
      const Result<std::unique_ptr<Serving>> serving =
          Serving::Create(SoonGivenUp(SharedAmong(stages, ranks)));
      ASSERT_TRUE(serving.ok()) << serving.status();
      Engine& engine = *(*serving)->engine;
      const std::vector<Collector> collectors = SubmitLong(engine, 4);
      ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 5));
      ASSERT_TRUE((*serving)->cluster->Kill("c1", signal).ok());
      ASSERT_NO_FATAL_FAILURE(ExpectFailed(collectors, "c1"));
      EXPECT_TRUE(engine.status().given_up);
    }
  }
}

// Those of its whole group start again, and nothing else: ranks hear of the loss from each other.
TEST(SharedModel, AMemoryNodeOfOneRankEndsNoRequest) {
  Deployment deployment = SharedAmong(1, 2);
  deployment.num_memory_nodes = 4;
  const Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  const std::vector<std::vector<TokenId>> expected = UndisturbedTokens(engine, 4);
  const std::vector<Collector> collectors = SubmitLong(engine, 4);
  ASSERT_NO_FATAL_FAILURE(AwaitTokens(collectors, 20));
  EXPECT_EQ(StatusOf(engine, "m1").num_sequences, 2);
  ASSERT_TRUE((*serving)->cluster->Kill("m1", SIGKILL).ok());  // rank 1's, of the group m0, m1
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(collectors, expected));
  EXPECT_EQ(StatusOf(engine, "m1").state, NodeState::kLost);
  EXPECT_TRUE(engine.status().serving);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
}

TEST(StartFailure, RanksNeedTheirHeadsAndTheirMemoryNodes) {
  const Result<ModelConfig> model = ModelConfig::Load(Deployment().model);  // 4 kv_heads
  ASSERT_TRUE(model.ok());
  ClusterConfig config;
  config.nodes.resize(6);
  config.nodes[0].role = config.nodes[1].role = config.nodes[2].role = NodeRole::kCompute;
  config.tensor_parallel_size = 3;
  EXPECT_THAT(ResolveConfig(config, *model).message(),
              HasSubstr("tensor_parallel_size 3 does not divide the model's 4 kv_heads"));
  config.nodes.resize(2);
  config.tensor_parallel_size = 2;
  config.num_batches = 0;
  config.kv_head_parallel = 3;
  EXPECT_THAT(ResolveConfig(config, *model).message(),
              HasSubstr("kv_head_parallel 3 must be a multiple of tensor_parallel_size 2"));
  config.num_batches = 0;
  config.kv_head_parallel = 1;
  ASSERT_TRUE(ResolveConfig(config, *model).ok());
  EXPECT_EQ(config.kv_head_parallel, 2);
}

// What each compute node says that it holds, and together they hold the model.
TEST(SharedModel, StatusSaysWhatEachNodeHolds) {
  std::vector<int64_t> bytes;
  std::vector<std::string> holds;
  for (const auto& [stages, ranks] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2)}) {
    Deployment deployment;
    deployment.pipeline_parallel_size = stages;
    deployment.tensor_parallel_size = ranks;
    const Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
    ASSERT_TRUE(serving.ok()) << serving.status();
    for (const NodeStatus& node : (*serving)->engine->status().nodes) {
      if (node.role != NodeRole::kCompute) continue;
      bytes.push_back(node.weight_bytes);
      holds.push_back(node.holds);
    }
  }
  ASSERT_EQ(bytes.size(), 5u);
  EXPECT_THAT(holds,
              ::testing::ElementsAre("", "layers 0..2", "layers 2..3", "part 0 of 2 of layers 0..3",
                                     "part 1 of 2 of layers 0..3"));
  EXPECT_GE(bytes[1] + bytes[2], bytes[0]);
  EXPECT_LT(std::max(bytes[1], bytes[2]), bytes[0] * 7 / 10);
  EXPECT_LT(bytes[3], bytes[0]);
  EXPECT_LT(bytes[4], bytes[3]) << "the head is on rank 0";
}

TEST(StartFailure, ASharedModelNeedsItsComputeNodesAndAFittingPipeline) {
  const Result<ModelConfig> model = ModelConfig::Load(Deployment().model);
  ASSERT_TRUE(model.ok());
  ClusterConfig config;
  config.nodes.resize(3);
  config.nodes[0].role = config.nodes[1].role = NodeRole::kCompute;
  config.pipeline_parallel_size = 3;
  EXPECT_THAT(ResolveConfig(config, *model).message(),
              HasSubstr("need 3 compute nodes, and there are 2"));
  config.pipeline_parallel_size = 2;
  config.pipeline = PipelineMode::kRotational;
  EXPECT_THAT(ResolveConfig(config, *model).message(), HasSubstr("use auto, fixed or none"));
  config.pipeline = PipelineMode::kNone;
  config.num_batches = 2;
  EXPECT_THAT(ResolveConfig(config, *model).message(), HasSubstr("pipeline policy none has one"));
  config.pipeline = PipelineMode::kFixed;
  config.num_batches = 0;
  ASSERT_TRUE(ResolveConfig(config, *model).ok());
  EXPECT_EQ(config.num_batches, 3);
  config.pipeline = PipelineMode::kAuto;
  config.num_batches = 0;
  ASSERT_TRUE(ResolveConfig(config, *model).ok());
  EXPECT_EQ(config.num_batches, 4);
}

TEST(StartFailure, MoreStagesThanSlicesIsTheComputeNodesClearError) {
  Deployment deployment;
  deployment.pipeline_parallel_size = 6;  // of 4 layers
  const Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  ASSERT_FALSE(serving.ok());
  EXPECT_THAT(serving.status().message(),
              HasSubstr("pipeline_parallel_size 6: a model of 4 layers can have 1 to 5 stages"));
}

TEST(Restart, WeightsAreLoadedAgainOnlyIfTheirFilesChanged) {
  const TemporaryFolder folder;
  const std::filesystem::path model = folder / "model";
  std::filesystem::copy(Deployment().model, model);
  LocalClusterOptions options;
  options.num_memory_nodes = 1;
  options.memory_bytes = 1 << 24;
  options.bin_dir = BinPath();
  const auto cluster = LocalCluster::Create(options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ClusterConfig config = (*cluster)->config();
  config.model_path = model;
  const Result<ModelConfig> described = ModelConfig::Load(model);
  ASSERT_TRUE(described.ok());
  ASSERT_TRUE(ResolveConfig(config, *described).ok());
  const auto loads = [&] {
    bool loaded = false;
    const auto executor = ClusterExecutor::Connect(
        config, *described,
        [&](const std::string& line) { loaded |= line.find("of weights") != std::string::npos; });
    EXPECT_TRUE(executor.ok()) << executor.status();
    return loaded;
  };
  EXPECT_TRUE(loads());
  EXPECT_FALSE(loads());
  std::filesystem::last_write_time(model / "model.safetensors",
                                   std::filesystem::file_time_type::clock::now());
  EXPECT_TRUE(loads());
}

TEST(StartFailure, NamesTheNodeThatCannotBeReached) {
  ClusterConfig config;
  NodeConfig compute;
  compute.name = "c0";
  compute.role = NodeRole::kCompute;
  compute.port = 1;  // nothing listens there
  config.nodes.push_back(compute);
  config.model_path = Deployment().model;
  config.start_timeout = milliseconds(300);
  const Result<ModelConfig> model = ModelConfig::Load(config.model_path);
  ASSERT_TRUE(model.ok());
  ASSERT_TRUE(ResolveConfig(config, *model).ok());
  const Result<std::unique_ptr<ClusterExecutor>> executor =
      ClusterExecutor::Connect(config, *model, {});
  ASSERT_FALSE(executor.ok());
  EXPECT_THAT(executor.status().message(), HasSubstr("compute node c0"));
  EXPECT_THAT(executor.status().message(), HasSubstr("127.0.0.1:1"));
}

TEST(StartFailure, AModelThatCannotBeLoadedIsTheComputeNodesClearError) {
  Deployment deployment;
  deployment.num_memory_nodes = 1;
  const TemporaryFolder folder;
  std::filesystem::copy_file(deployment.model + "/config.json", folder / "config.json");
  deployment.model = folder.path();
  const Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  ASSERT_FALSE(serving.ok());
  EXPECT_THAT(serving.status().message(), HasSubstr("compute node c0"));
  EXPECT_THAT(serving.status().message(), HasSubstr("no weights in " + folder.path()));
}

}  // namespace
}  // namespace lamina::testing
