// A compute node that is lost in the middle of everything, by a whole cluster on one thread in
// virtual time: memory nodes keep their KV, and what decodes goes on where it was.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tests/simulation/golden_streams.h"

namespace lamina::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ComputeLoss : public GoldenStreams, public ::testing::WithParamInterface<Deployment> {
 protected:
  void KillAndStart(const std::string& name, Clock::duration down) {
    cluster_->Kill(name);
    ASSERT_NO_FATAL_FAILURE(RunFor(down));
    const Status started = cluster_->Start(name);
    ASSERT_TRUE(started.ok()) << started;
  }
};

TEST_P(ComputeLoss, CostsNoTokenThatWasComputed) {
  ASSERT_NO_FATAL_FAILURE(Connect(GetParam()));
  ASSERT_NO_FATAL_FAILURE(RunUntilAllHave(3));
  const int64_t started = num_started_tokens();
  ASSERT_NO_FATAL_FAILURE(KillAndStart("c0", seconds(5)));
  ExpectGolden();
  EXPECT_EQ(num_started_tokens(), started) << "nothing is prefilled again";
}

TEST_P(ComputeLoss, AgainAndAgain) {
  ASSERT_NO_FATAL_FAILURE(Connect(GetParam()));
  ASSERT_NO_FATAL_FAILURE(RunUntilAllHave(3));
  const int64_t started = num_started_tokens();
  for (int times = 0; times < 5; ++times) {
    ASSERT_NO_FATAL_FAILURE(KillAndStart("c0", milliseconds(20 + 300 * times)));
    ASSERT_TRUE(cluster_->RunUntil([&] { return cluster_->serves(); }, seconds(60)));
    ASSERT_NO_FATAL_FAILURE(RunFor(microseconds(300 + 100 * times)));
  }
  ExpectGolden();
  EXPECT_EQ(num_started_tokens(), started);
}

TEST_P(ComputeLoss, InThePromptsToo) {
  for (const int num_turns : {1, 3, 6, 10, 20}) {
    SCOPED_TRACE(num_turns);
    golden_ = GoldenPrompts();
    streams_.clear();
    ASSERT_NO_FATAL_FAILURE(Connect(GetParam()));
    ASSERT_NO_FATAL_FAILURE(RunFor(num_turns * microseconds(40)));
    ASSERT_NO_FATAL_FAILURE(KillAndStart("c0", milliseconds(300)));
    ExpectGolden();
    cluster_.reset();
  }
}

// The KV of the one that is lost too is computed again, and no other.
TEST_P(ComputeLoss, TogetherWithAMemoryNode) {
  ASSERT_NO_FATAL_FAILURE(Connect(GetParam()));
  ASSERT_NO_FATAL_FAILURE(RunUntilAllHave(3));
  const int64_t started = num_started_tokens();
  cluster_->Kill("m1");
  ASSERT_NO_FATAL_FAILURE(KillAndStart("c0", milliseconds(300)));
  const Status back = cluster_->Start("m1");
  ASSERT_TRUE(back.ok()) << back;
  ExpectGolden();
  const int64_t again = num_started_tokens() - started;
  EXPECT_GT(again, 0);
  const bool all_on_both = GetParam().kv_head_parallel > 1 || GetParam().spread_tokens > 0;
  if (!all_on_both) {
    EXPECT_LT(again, started * 3 / 4);
  }
}

class MemoryReturn : public ComputeLoss {};

// A node that was lost comes back empty: only that one is filled anew. It is looked for once a
// second, so steps take their time.
TEST_P(MemoryReturn, CostsTheOthersNothing) {
  ASSERT_NO_FATAL_FAILURE(Connect(GetParam(), milliseconds(20)));
  ASSERT_NO_FATAL_FAILURE(RunUntilAllHave(3));
  cluster_->Kill("m1");
  ASSERT_TRUE(cluster_->RunUntil([&] { return StateOf("m1") == NodeState::kLost; }, seconds(20)));
  ASSERT_NO_FATAL_FAILURE(RunUntilAllHave(6));
  const int64_t started = num_started_tokens();
  const Status back = cluster_->Start("m1");
  ASSERT_TRUE(back.ok()) << back;
  ASSERT_TRUE(cluster_->RunUntil([&] { return StateOf("m1") == NodeState::kReady; }, seconds(20)));
  ASSERT_GT(std::ranges::count(streams_, false, &Stream::over), 3);
  ExpectGolden();
  EXPECT_EQ(num_started_tokens(), started);
}

std::vector<Deployment> Deployments() {
  std::vector<Deployment> all(1, Plain());
  const auto add = [&](auto change) { change(all.emplace_back(Plain())); };
  add([](Deployment& of) { of.num_compute_nodes = 2; });
  add([](Deployment& of) { of.overlap = Switch::kOn; });
  add([](Deployment& of) { of.kv_head_parallel = 2; });
  add([](Deployment& of) { of.spread_tokens = 16; });
  add([](Deployment& of) { of.num_compute_nodes = 2, of.pipeline = PipelineMode::kRotational; });
  add([](Deployment& of) { of.pipeline_parallel_size = 2; });
  add([](Deployment& of) { of.tensor_parallel_size = of.kv_head_parallel = 2; });
  return all;
}

// Where the other memory node serves without it.
std::vector<Deployment> WithoutGroups() {
  std::vector<Deployment> all = Deployments();
  std::erase_if(all, [](const Deployment& of) { return of.kv_head_parallel > 1; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Deployments, ComputeLoss, ::testing::ValuesIn(Deployments()),
                         [](const auto& of) { return of.param.Name(); });
INSTANTIATE_TEST_SUITE_P(Deployments, MemoryReturn, ::testing::ValuesIn(WithoutGroups()),
                         [](const auto& of) { return of.param.Name(); });

}  // namespace
}  // namespace lamina::testing
