// The shipped model's golden continuations by a whole cluster on one thread in virtual time: the
// manager, compute nodes and memory nodes, with the real model and the real data path.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "tests/support/expect_golden.h"
#include "tests/support/sanitized.h"
#include "tests/support/virtual_cluster.h"

namespace lamina::testing {
namespace golden_test {

using std::chrono::seconds;

Deployment Plain() {
  Deployment deployment;
  deployment.kv_dtype = DType::kF32;
  return deployment;
}

// Sanitizers make the model's own work some twenty times slower, and find as much in a few prompts.
std::vector<GoldenPrompt> Prompts() {
  std::vector<GoldenPrompt> golden = GoldenPrompts();
  if (kSanitized) golden.resize(4);
  return golden;
}

// Connects the nodes. `cluster` is null if that fails.
void Connect(const Deployment& deployment, std::unique_ptr<VirtualCluster>& cluster) {
  Result<std::unique_ptr<VirtualCluster>> made = VirtualCluster::Create(deployment);
  ASSERT_TRUE(made.ok()) << made.status();
  cluster = *std::move(made);
  const auto is_over = [&] { return cluster->serves() || !cluster->failure().ok(); };
  ASSERT_TRUE(cluster->RunUntil(is_over, seconds(10)));
  ASSERT_TRUE(cluster->serves()) << cluster->failure();
}

bool AllDone(const std::vector<Collector>& collectors) {
  return std::ranges::all_of(collectors,
                             [](const Collector& one) { return one.results()[0].finished; });
}

// Submits all prompts at once and expects what PyTorch went on with.
void ExpectGolden(VirtualCluster& cluster, const std::vector<GoldenPrompt>& golden) {
  std::vector<Collector> collectors(golden.size());
  for (size_t i = 0; i < golden.size(); ++i)
    ASSERT_TRUE(cluster.Submit(GreedyRequest(golden[i].prompt_ids, 96), collectors[i].sink()).ok());
  ASSERT_TRUE(cluster.RunUntil([&] { return AllDone(collectors); }, seconds(60)));
  for (size_t i = 0; i < golden.size(); ++i)
    ExpectContinuation(golden[i], collectors[i].results()[0]);
}

TEST(Simulation, AGoldenContinuationOnOneThread) {
  std::unique_ptr<VirtualCluster> cluster;
  ASSERT_NO_FATAL_FAILURE(Connect(Plain(), cluster));
  const TimePoint start = cluster->now();
  ExpectGolden(*cluster, {Prompts().front()});
  EXPECT_GT(cluster->now(), start);
  EXPECT_EQ(cluster->status().scheduler.num_running, 0);
}

// All of them at once, in every way in which nodes share the work.
class SimulatedGolden : public ::testing::TestWithParam<Deployment> {};

TEST_P(SimulatedGolden, Continuations) {
  std::unique_ptr<VirtualCluster> cluster;
  ASSERT_NO_FATAL_FAILURE(Connect(GetParam(), cluster));
  ExpectGolden(*cluster, Prompts());
}

std::vector<Deployment> Deployments() {
  std::vector<Deployment> all(1, Plain());
  const auto add = [&](auto change) { change(all.emplace_back(Plain())); };
  add([](Deployment& of) { of.overlap = Switch::kOn; });
  add([](Deployment& of) { of.num_memory_nodes = 3, of.kv_head_parallel = 3; });
  add([](Deployment& of) { of.spread_tokens = 16; });
  add([](Deployment& of) { of.num_memory_nodes = 0; });
  for (const PipelineMode pipeline : {PipelineMode::kFixed, PipelineMode::kRotational}) {
    add([&](Deployment& of) { of.num_compute_nodes = 2, of.pipeline = pipeline; });
  }
  add([](Deployment& of) { of.pipeline_parallel_size = 2; });
  add([](Deployment& of) { of.tensor_parallel_size = of.kv_head_parallel = 2; });
  add([](Deployment& of) {
    of.pipeline_parallel_size = of.tensor_parallel_size = of.kv_head_parallel = 2;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Deployments, SimulatedGolden, ::testing::ValuesIn(Deployments()),
                         [](const auto& of) { return of.param.Name(); });

// When a token of which request came.
struct Told {
  Clock::duration at;
  size_t request;
  TokenId token;
  bool operator==(const Told&) const = default;
};

std::vector<Told> TokensOfARun(const std::vector<GoldenPrompt>& golden) {
  std::unique_ptr<VirtualCluster> cluster;
  Deployment deployment = Plain();
  deployment.num_compute_nodes = 2;
  Connect(deployment, cluster);
  if (cluster == nullptr) return {};
  std::vector<Told> told;
  size_t open = golden.size();
  const TimePoint start = cluster->now();
  for (size_t i = 0; i < golden.size(); ++i) {
    const auto sink = [&, i](const TokenEvent& event) {
      if (event.token) told.push_back({cluster->now() - start, i, *event.token});
      open -= event.finish ? 1 : 0;
    };
    EXPECT_TRUE(cluster->Submit(GreedyRequest(golden[i].prompt_ids, 96), sink).ok());
  }
  EXPECT_TRUE(cluster->RunUntil([&] { return open == 0; }, seconds(60)));
  return told;
}

TEST(Simulation, ARunIsAFunctionOfItsInput) {
  const std::vector<GoldenPrompt> golden = Prompts();
  const std::vector<Told> first = TokensOfARun(golden);
  EXPECT_GT(first.size(), golden.size());
  EXPECT_EQ(TokensOfARun(golden), first);
}

// Sequences with KV on a memory node that is lost start again on the other one; when it is there
// again it is used again.
TEST(Simulation, AMemoryNodeThatWasLostIsUsedAgain) {
  const std::vector<GoldenPrompt> golden = Prompts();
  std::unique_ptr<VirtualCluster> cluster;
  ASSERT_NO_FATAL_FAILURE(Connect(Plain(), cluster));
  std::vector<Collector> collectors(golden.size());
  for (size_t i = 0; i < golden.size(); ++i)
    ASSERT_TRUE(
        cluster->Submit(GreedyRequest(golden[i].prompt_ids, 96), collectors[i].sink()).ok());
  ASSERT_TRUE(cluster->RunUntil([&] { return collectors[0].results()[0].tokens.size() == 5; },
                                seconds(60)));
  for (const NodeUse& node : cluster->status().scheduler.nodes)
    EXPECT_GT(node.num_sequences, 0) << "node " << node.id.value << " has none";
  cluster->Kill("m1");
  int most_rebuilding = 0;
  ASSERT_TRUE(cluster->RunUntil(
      [&] {
        most_rebuilding = std::max(most_rebuilding, cluster->status().num_rebuilding);
        return AllDone(collectors);
      },
      seconds(60)));
  EXPECT_GT(most_rebuilding, 0);
  for (size_t i = 0; i < golden.size(); ++i)
    ExpectContinuation(golden[i], collectors[i].results()[0]);

  ASSERT_TRUE(cluster->Start("m1").ok());
  const auto is_back = [&] {
    return std::ranges::count(cluster->status().nodes, NodeState::kReady, &NodeStatus::state) == 3;
  };
  ASSERT_TRUE(cluster->RunUntil(is_back, seconds(60)));
  ExpectGolden(*cluster, golden);
}

// Requests only wait when one of two compute nodes is lost, in the middle of everything.
TEST(Simulation, RequestsSurviveTheLossOfAComputeNode) {
  const std::vector<GoldenPrompt> golden = Prompts();
  for (const size_t num_tokens : {0, 1, 7}) {
    SCOPED_TRACE(num_tokens);
    std::unique_ptr<VirtualCluster> cluster;
    Deployment deployment = Plain();
    deployment.num_compute_nodes = 2;
    deployment.pipeline = PipelineMode::kRotational;
    ASSERT_NO_FATAL_FAILURE(Connect(deployment, cluster));
    std::vector<Collector> collectors(golden.size());
    for (size_t i = 0; i < golden.size(); ++i)
      ASSERT_TRUE(
          cluster->Submit(GreedyRequest(golden[i].prompt_ids, 96), collectors[i].sink()).ok());
    ASSERT_TRUE(cluster->RunUntil(
        [&] { return collectors[0].results()[0].tokens.size() >= num_tokens; }, seconds(60)));
    cluster->Kill("c1");
    ASSERT_TRUE(cluster->RunUntil([&] { return AllDone(collectors); }, seconds(60)));
    for (size_t i = 0; i < golden.size(); ++i)
      ExpectContinuation(golden[i], collectors[i].results()[0]);
  }
}

}  // namespace golden_test
}  // namespace lamina::testing
