// 500 small clusters whose data path drops, delays, reorders, duplicates, corrupts, goes silent or
// breaks, each by its own seed: every request ends in time and with the right tokens. Only if too
// little is left to serve with (nobody connects nodes anew here) it ends with an error that says
// what happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "wire/wire_format.h"

#include "tests/support/faulty_cluster.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;

constexpr int kSeedsPerTest = 50;
constexpr size_t kMaxTokens = 12;

// One or two kinds of faults, in one direction or both, often enough that most runs see some.
FaultPlan DrawPlan(std::mt19937_64& random) {
  FaultPlan plan;
  plan.seed = random();
  const int kinds = 1 + static_cast<int>(random() % 2);
  for (int i = 0; i < kinds; ++i) {
    const double chance = 0.002 * static_cast<double>(1 + random() % 10);
    switch (random() % 8) {
      case 0: plan.drop_notification = chance; break;
      case 1: plan.duplicate_notification = chance; break;
      case 2: plan.corrupt_payload = chance; break;
      case 3: plan.delay = 10 * chance; break;
      case 4: plan.reorder = 5 * chance; break;
      case 5: plan.disconnect_after_posts = 1 + random() % 60; break;
      case 6: plan.mute_after_posts = 1 + random() % 60; break;
      case 7:  // slow: every post waits
        plan.delay = 1;
        plan.delay_polls = 200;
        break;
    }
  }
  return plan;
}

struct Outcome {
  int right = 0, failed = 0;
  int survived = 0;  // seeds in which a memory node was lost and every request was right
  uint64_t faults = 0;
};

bool HasLostNode(const EngineStatus& status) {
  return std::ranges::count(status.nodes, NodeState::kLost, &NodeStatus::state) > 0;
}

void RunSeed(uint64_t seed, Outcome& outcome) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  FaultyClusterOptions options;
  if (random() % 3 != 0) options.of_compute = DrawPlan(random);
  if (options.of_compute.seed == 1 || random() % 2 == 0) options.of_memory = DrawPlan(random);
  if (seed % 3 == 1) options.kv_head_parallel = 2;
  if (seed % 3 == 2) options.spread_tokens = 8;
  if (seed % 4 == 3) options.num_batches = 2;
  if (seed % 5 == 4) {
    options.num_compute_nodes = 2;
    options.num_batches = 0;
  }
  if (seed % 5 == 2) {
    options.num_compute_nodes = options.tensor_parallel_size = 2;
    options.kv_head_parallel = 2;
  }
  options.overlap = seed % 5 >= 3;
  Result<std::unique_ptr<FaultyCluster>> cluster = FaultyCluster::Create(options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();

  static const std::vector<GoldenPrompt> golden = GoldenPrompts();
  std::vector<size_t> chosen;
  std::vector<Collector> collectors(5);
  const Deadline deadline = Deadline::After(seconds(20));
  for (const Collector& collector : collectors) {
    chosen.push_back(random() % golden.size());
    const Result<RequestId> id = (*cluster)->engine().Submit(
        GreedyRequest(golden[chosen.back()].prompt_ids, kMaxTokens), collector.sink());
    if (!id.ok()) {  // nothing is left already, and it says so
      EXPECT_TRUE((*cluster)->engine().status().given_up) << id.status();
      EXPECT_FALSE(id.status().message().empty());
      chosen.pop_back();
      ++outcome.failed;
      break;
    }
  }
  const int failed_before = outcome.failed;
  for (size_t i = 0; i < chosen.size(); ++i) {
    ASSERT_TRUE(collectors[i].Wait(deadline)) << "a request hangs";
    const Generated got = collectors[i].results()[0];
    const std::vector<TokenId>& expected = golden[chosen[i]].continuation_ids;
    ASSERT_LE(got.tokens.size(), expected.size());
    EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), expected.begin()))
        << "wrong tokens";
    if (got.reason == FinishReason::kError) {
      EXPECT_TRUE((*cluster)->engine().status().given_up) << got.error;
      EXPECT_THAT(got.error.message(), ::testing::MatchesRegex(".*(m0|m1|c0|c1).*"))
          << "which node?";
      ++outcome.failed;
    } else {
      EXPECT_EQ(got.tokens.size(), std::min(kMaxTokens, expected.size()));
      ++outcome.right;
    }
  }
  if (chosen.size() == collectors.size() && outcome.failed == failed_before)
    outcome.survived += HasLostNode((*cluster)->engine().status()) ? 1 : 0;
  outcome.faults += (*cluster)->Stop();
}

class FaultSeeds : public ::testing::TestWithParam<int> {};

TEST_P(FaultSeeds, EveryRequestEndsRightAsLongAsANodeIsLeft) {
  Outcome outcome;
  for (int i = 0; i < kSeedsPerTest && !HasFatalFailure(); ++i) {
    RunSeed(static_cast<uint64_t>(GetParam() * kSeedsPerTest + i), outcome);
  }
  RecordProperty("right", outcome.right);
  RecordProperty("failed", outcome.failed);
  RecordProperty("survived", outcome.survived);
  RecordProperty("faults", static_cast<int>(outcome.faults));
  EXPECT_GT(outcome.right, kSeedsPerTest)
      << "hardly any request got through: the faults hide everything";
  EXPECT_GT(outcome.survived, 0);
  EXPECT_GT(outcome.faults, static_cast<uint64_t>(kSeedsPerTest));
}

INSTANTIATE_TEST_SUITE_P(Seeds, FaultSeeds, ::testing::Range(0, 10));

// Nothing that compute nodes send each other arrives any more; memory nodes and the manager hear
// all of them.
TEST(FaultyCluster, ACutBetweenComputeNodesIsNoticedWithinThePeerTimeout) {
  const auto between_compute_nodes = [](uint32_t notification) {
    const MessageKind kind = Notification::Unpack(notification).value_or(Notification{}).kind;
    return kind == MessageKind::kContext || kind == MessageKind::kPartialSum ||
           kind == MessageKind::kAlive;
  };
  for (const bool stages : {true, false}) {
    SCOPED_TRACE(stages ? "stages" : "ranks");
    FaultyClusterOptions options;
    options.num_compute_nodes = 2;
    (stages ? options.pipeline_parallel_size : options.tensor_parallel_size) = 2;
    if (!stages) options.kv_head_parallel = 2;
    options.peer_timeout = milliseconds(500);
    options.step_timeout = seconds(60);
    options.of_compute.mute_after_posts = 20;
    options.of_compute.mutes = between_compute_nodes;
    Result<std::unique_ptr<FaultyCluster>> cluster = FaultyCluster::Create(options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const Collector collector;
    ASSERT_TRUE((*cluster)
                    ->engine()
                    .Submit(GreedyRequest(GoldenPrompts()[0].prompt_ids, 100), collector.sink())
                    .ok());
    ASSERT_TRUE(collector.Wait(Deadline::After(seconds(30)))) << "only the step's deadline ends it";
    const Generated got = collector.results()[0];
    EXPECT_EQ(got.reason, FinishReason::kError);
    EXPECT_THAT(
        got.error.message(),
        ::testing::MatchesRegex("compute node c[01] lost compute node c[01]: no sign of life .*"));
    EXPECT_GT((*cluster)->Stop(), 0u);
  }
}

TEST(FaultyCluster, WithoutFaultsEveryRequestIsRight) {
  Result<std::unique_ptr<FaultyCluster>> cluster = FaultyCluster::Create({});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::vector<GoldenPrompt> golden = GoldenPrompts();
  std::vector<Collector> collectors(golden.size());
  for (size_t i = 0; i < golden.size(); ++i)
    ASSERT_TRUE((*cluster)
                    ->engine()
                    .Submit(GreedyRequest(golden[i].prompt_ids, kMaxTokens), collectors[i].sink())
                    .ok());
  for (size_t i = 0; i < golden.size(); ++i) {
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(seconds(60))));
    const Generated got = collectors[i].results()[0];
    const size_t count = std::min(kMaxTokens, golden[i].continuation_ids.size());
    EXPECT_TRUE(got.error.ok()) << got.error;
    EXPECT_EQ(got.tokens, std::vector<TokenId>(golden[i].continuation_ids.begin(),
                                               golden[i].continuation_ids.begin() +
                                                   static_cast<std::ptrdiff_t>(count)));
  }
  EXPECT_EQ((*cluster)->Stop(), 0u);
}

}  // namespace
}  // namespace lamina::testing
