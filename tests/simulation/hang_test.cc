// A memory node that does not run for a while, in the middle of everything, by a whole cluster on
// one thread in virtual time: its sequences sit out and go on where they were.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/support/expect_golden.h"
#include "tests/support/virtual_cluster.h"

namespace lamina::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Deployment Plain() {
  Deployment deployment;
  deployment.kv_dtype = DType::kF32;
  return deployment;
}

class Hang : public ::testing::Test {
 protected:
  void Connect(const Deployment& deployment) {
    Result<std::unique_ptr<VirtualCluster>> made = VirtualCluster::Create(deployment);
    ASSERT_TRUE(made.ok()) << made.status();
    cluster_ = *std::move(made);
    ASSERT_TRUE(cluster_->RunUntil([&] { return cluster_->serves() || !cluster_->failure().ok(); },
                                   seconds(10)));
    ASSERT_TRUE(cluster_->serves()) << cluster_->failure();
    golden_.resize(std::min<size_t>(golden_.size(), 8));
    streams_.resize(golden_.size());
    for (size_t i = 0; i < golden_.size(); ++i) {
      const auto sink = [&stream = streams_[i], this](const TokenEvent& event) {
        if (event.token && !stream.tokens.empty())
          stream.longest_gap = std::max(stream.longest_gap, cluster_->now() - stream.last_token);
        stream.last_token = cluster_->now();
        if (event.token) stream.tokens.push_back(*event.token);
        stream.over |= event.finish.has_value();
        EXPECT_TRUE(event.error.ok()) << event.error;
      };
      ASSERT_TRUE(cluster_->Submit(GreedyRequest(golden_[i].prompt_ids, 96), sink).ok());
    }
  }
  // Runs until every stream has so many tokens or is over.
  void RunUntilAllHave(size_t num_tokens) {
    const auto has_them = [&](const Stream& one) {
      return one.over || one.tokens.size() >= num_tokens;
    };
    ASSERT_TRUE(
        cluster_->RunUntil([&] { return std::ranges::all_of(streams_, has_them); }, seconds(60)));
  }
  void RunFor(Clock::duration time) {
    const TimePoint end = cluster_->now() + time;
    ASSERT_TRUE(cluster_->RunUntil([&] { return cluster_->now() >= end; }, 2 * time));
  }
  void ExpectGolden() {
    ASSERT_TRUE(cluster_->RunUntil([&] { return std::ranges::all_of(streams_, &Stream::over); },
                                   seconds(60)));
    for (size_t i = 0; i < golden_.size(); ++i)
      EXPECT_EQ(streams_[i].tokens, golden_[i].continuation_ids) << golden_[i].prompt;
    EXPECT_EQ(cluster_->status().scheduler.num_running, 0);
  }
  NodeState StateOf(const std::string& name) const {
    const std::vector<NodeStatus> nodes = cluster_->status().nodes;
    return std::ranges::find(nodes, name, &NodeStatus::name)->state;
  }
  int64_t num_started_tokens() const { return cluster_->status().scheduler.num_started_tokens; }
  // Of the streams that nobody has to wait for.
  Clock::duration LongestShortGap() const {
    Clock::duration longest{};
    for (const Stream& stream : streams_) {
      if (stream.longest_gap < seconds(2)) longest = std::max(longest, stream.longest_gap);
    }
    return longest;
  }

  struct Stream {
    std::vector<TokenId> tokens;
    TimePoint last_token{};
    Clock::duration longest_gap{};
    bool over = false;
  };
  std::vector<GoldenPrompt> golden_ = GoldenPrompts();
  std::vector<Stream> streams_;
  std::unique_ptr<VirtualCluster> cluster_;
};

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
  return all;
}

INSTANTIATE_TEST_SUITE_P(Deployments, HangIn, ::testing::ValuesIn(Deployments()),
                         [](const auto& of) { return of.param.Name(); });

// Where nobody is suspended yet, all wait, as long as that is short.
TEST_F(Hang, WithSeveralComputeNodesOthersWait) {
  Deployment deployment = Plain();
  deployment.num_compute_nodes = 2;
  ASSERT_NO_FATAL_FAILURE(Connect(deployment));
  ASSERT_NO_FATAL_FAILURE(RunUntilAllHave(3));
  const int64_t started = num_started_tokens();
  cluster_->Pause("m1");
  ASSERT_NO_FATAL_FAILURE(RunFor(seconds(3)));
  EXPECT_EQ(StateOf("m1"), NodeState::kReady);
  cluster_->Resume("m1");
  ExpectGolden();
  EXPECT_EQ(num_started_tokens(), started);
}

}  // namespace
}  // namespace lamina::testing
