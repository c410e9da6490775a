// The shipped model's golden continuations by a whole cluster on one thread in virtual time: the
// manager, compute nodes and memory nodes, with the real model and the real data path.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/expect_golden.h"
#include "tests/support/thread_seconds.h"
#include "tests/support/virtual_cluster.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;

Deployment Plain() {
  Deployment deployment;
  deployment.kv_dtype = DType::kF32;
  return deployment;
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
  ExpectGolden(*cluster, {GoldenPrompts().front()});
  EXPECT_GT(cluster->now(), start);
  EXPECT_EQ(cluster->status().scheduler.num_running, 0);
}

TEST(Simulation, AllGoldenContinuationsAtOnce) {
  std::unique_ptr<VirtualCluster> cluster;
  ASSERT_NO_FATAL_FAILURE(Connect(Plain(), cluster));
  ExpectGolden(*cluster, GoldenPrompts());
}

}  // namespace
}  // namespace lamina::testing
