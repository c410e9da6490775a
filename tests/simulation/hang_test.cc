// A memory node that does not run for a while, in the middle of everything, by a whole cluster on
// one thread in virtual time: its sequences sit out and go on where they were.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/simulation/golden_streams.h"

namespace lamina::testing {
namespace hang_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

using Hang = GoldenStreams;

class HangIn : public Hang, public ::testing::WithParamInterface<Deployment> {};

TEST_P(HangIn, ANodeThatDoesNotRunForThreeSecondsCostsNothingButTheTime) {
  ASSERT_NO_FATAL_FAILURE(Connect(GetParam()));
  ASSERT_NO_FATAL_FAILURE(RunUntilAllHave(3));
  const int64_t started = num_started_tokens();
  cluster_->Pause("m1");
  ASSERT_NO_FATAL_FAILURE(RunFor(milliseconds(2900)));
  EXPECT_EQ(StateOf("m1"), NodeState::kSuspended);
  EXPECT_GT(cluster_->status().scheduler.num_suspended, 0);
  EXPECT_TRUE(cluster_->status().serving);
  ASSERT_NO_FATAL_FAILURE(RunFor(milliseconds(100)));
  cluster_->Resume("m1");
  ExpectGolden();
  EXPECT_EQ(StateOf("m1"), NodeState::kReady);
  EXPECT_EQ(num_started_tokens(), started) << "nothing is prefilled again";
  EXPECT_LE(LongestShortGap(), seconds(1) + milliseconds(50)) << "suspect_after and a step";
}

TEST_P(HangIn, InThePromptsToo) {
  for (const int num_turns : {1, 3, 6, 10}) {
    SCOPED_TRACE(num_turns);
    golden_ = GoldenPrompts();
    streams_.clear();
    ASSERT_NO_FATAL_FAILURE(Connect(GetParam()));
    ASSERT_NO_FATAL_FAILURE(RunFor(num_turns * microseconds(40)));
    cluster_->Pause("m0");
    ASSERT_NO_FATAL_FAILURE(RunFor(seconds(3)));
    cluster_->Resume("m0");
    ExpectGolden();
    cluster_.reset();
  }
}

// One after the other, so that what goes on is late again.
TEST_P(HangIn, AgainAndAgain) {
  ASSERT_NO_FATAL_FAILURE(Connect(GetParam()));
  ASSERT_NO_FATAL_FAILURE(RunUntilAllHave(3));
  const int64_t started = num_started_tokens();
  for (int times = 0; times < 6; ++times) {
    const std::string name = times % 2 == 0 ? "m0" : "m1";
    cluster_->Pause(name);
    ASSERT_NO_FATAL_FAILURE(RunFor(seconds(2 + times)));
    cluster_->Resume(name);
    ASSERT_NO_FATAL_FAILURE(RunFor(microseconds(300 + 100 * times)));
  }
  ExpectGolden();
  EXPECT_EQ(num_started_tokens(), started);
}

TEST_P(HangIn, ForEverIsALoss) {
  ASSERT_NO_FATAL_FAILURE(Connect(GetParam()));
  ASSERT_NO_FATAL_FAILURE(RunUntilAllHave(3));
  const int64_t started = num_started_tokens();
  cluster_->Pause("m1");
  ASSERT_NO_FATAL_FAILURE(RunFor(seconds(9)));
  EXPECT_EQ(StateOf("m1"), NodeState::kSuspended);
  ASSERT_NO_FATAL_FAILURE(RunFor(seconds(2)));
  EXPECT_NE(StateOf("m1"), NodeState::kSuspended);
  if (GetParam().num_memory_nodes > GetParam().kv_head_parallel) {
    ExpectGolden();
    EXPECT_GT(num_started_tokens(), started);
  }
}

std::vector<Deployment> Deployments() {
  std::vector<Deployment> all(1, Plain());
  const auto add = [&](auto change) { change(all.emplace_back(Plain())); };
  add([](Deployment& of) { of.overlap = Switch::kOn; });
  add([](Deployment& of) { of.kv_head_parallel = 2; });
  add([](Deployment& of) { of.spread_tokens = 16; });
  add([](Deployment& of) { of.num_batches = 4, of.pipeline = PipelineMode::kFixed; });
  // Several compute nodes: each has whole steps, or they share each step in one way or another.
  add([](Deployment& of) { of.num_compute_nodes = 2, of.pipeline = PipelineMode::kFixed; });
  const auto rotate = [](Deployment& of) {
    of.num_compute_nodes = 2;
    of.pipeline = PipelineMode::kRotational;
  };
  add(rotate);
  add([](Deployment& of) { of.num_compute_nodes = 3, of.pipeline = PipelineMode::kRotational; });
  add([&](Deployment& of) { rotate(of), of.overlap = Switch::kOn; });
  add([&](Deployment& of) { rotate(of), of.spread_tokens = 16; });
  add([](Deployment& of) { of.pipeline_parallel_size = 2; });
  add([](Deployment& of) {
    of.tensor_parallel_size = of.kv_head_parallel = 2;
    of.num_memory_nodes = 4;
  });
  add([](Deployment& of) {
    of.pipeline_parallel_size = of.tensor_parallel_size = of.kv_head_parallel = 2;
    of.num_memory_nodes = 4;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Deployments, HangIn, ::testing::ValuesIn(Deployments()),
                         [](const auto& of) { return of.param.Name(); });

}  // namespace hang_test
}  // namespace lamina::testing
