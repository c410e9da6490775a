// KV that memory nodes keep while nodes are connected anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/manager/engine_outage_fixture.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::ElementsAre;

class KeptKvTest : public EngineOutageTest {
 protected:
  // Two requests that decode, on a node each, with a step in flight.
  void LoseComputeInTheMiddle() {
    nodes_->kv = {{kNode, {7, {}}}, {kOther, {8, {}}}};
    CreateWithTwoMemoryNodes();
    first_ = Submit({1, 2}, 4), second_ = Submit({1, 2}, 3);
    for (int i = 0; i < 2; ++i) Tell(FakeExecutor::Answer(NextSubmitted()));
    in_flight_ = NextSubmitted();
    Lose(kCompute);
    task_ = NextTask();
    started_ = engine_->status().scheduler.num_started_tokens;
  }
  int64_t num_started_again() const {
    return engine_->status().scheduler.num_started_tokens - started_;
  }
  void ReconnectWith(std::map<NodeId, NodeKv> kv) {
    auto next = std::make_shared<FakeExecutor::Shared>();
    next->kv_nodes = nodes_->kv_nodes;
    next->kv = std::move(kv);
    next->answer_at_once = false;
    ReconnectAs(next);
  }
  void RunAll() {
    AnswerAll();
    EXPECT_THAT(Result(first_).tokens, ElementsAre(20, 30, 40, 50));
    EXPECT_THAT(Result(second_).tokens, ElementsAre(20, 30, 40));
  }

  Collector first_, second_;
  StepPlan in_flight_;
  ReconnectTask task_;
  int64_t started_ = 0;
};

TEST_F(KeptKvTest, WhatMemoryNodesKeepIsNotComputedAgain) {
  LoseComputeInTheMiddle();
  EXPECT_EQ(task_.known.held.ids, (std::map<NodeId, uint64_t>{{kNode, 7}, {kOther, 8}}));
  ASSERT_EQ(task_.known.held.tokens.size(), 2u);
  for (const Work& work : in_flight_.work) {
    const std::vector<HeldTokens>& held = task_.known.held.tokens[work.route[0].node];
    ASSERT_EQ(held.size(), 1u);
    EXPECT_EQ(held[0].sequence, work.sequence);
    EXPECT_EQ(held[0].num_tokens, work.first_position) << "the one in flight does not count";
  }
  ReconnectWith({{kNode, {7, {}}}, {kOther, {8, {}}}});
  ASSERT_EQ(nodes_->submitted.size(), 1u);
  ASSERT_EQ(nodes_->submitted[0].work.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Work& work = nodes_->submitted[0].work[i];
    EXPECT_EQ(work.tokens, in_flight_.work[i].tokens);
    EXPECT_TRUE(work.again);
    EXPECT_EQ(work.route[0].slots, in_flight_.work[i].route[0].slots) << "the slot that it has";
    EXPECT_EQ(nodes_->announced[i].tokens.back(), work.tokens[0]);
  }
  RunAll();
  EXPECT_EQ(num_started_again(), 0);
}

TEST_F(KeptKvTest, ANodeWithOtherKvHasItsSequencesStartAgain) {
  LoseComputeInTheMiddle();
  ReconnectWith({{kNode, {7, {}}}, {kOther, {9, {}}}});
  RunAll();
  EXPECT_THAT(num_started_again(), AnyOf(3, 4));
}

TEST_F(KeptKvTest, SoHasASequenceThatIsMissing) {
  LoseComputeInTheMiddle();
  std::map<NodeId, NodeKv> kv = {{kNode, {7, {}}}, {kOther, {8, {}}}};
  kv[in_flight_.work[0].route[0].node].missing = {in_flight_.work[0].sequence};
  ReconnectWith(std::move(kv));
  RunAll();
  EXPECT_EQ(num_started_again(), 4);
}

// The node was configured in a try that was in vain, and tells of that KV now.
TEST_F(KeptKvTest, KvThatWasMadeInATryInVainIsNotTakenForTheOneOfBefore) {
  LoseComputeInTheMiddle();
  engine_->Reconnected(PeerLost("no compute node is left: test"));
  engine_->Advance(seconds(2));
  const ReconnectTask task = NextTask();
  EXPECT_EQ(task.known.held.ids, (std::map<NodeId, uint64_t>{{kNode, 7}, {kOther, 8}}));
  EXPECT_EQ(task.known.held.tokens.size(), 2u);
  ReconnectWith({{kNode, {7, {}}}, {kOther, {17, {}}}});
  RunAll();
  EXPECT_THAT(num_started_again(), AnyOf(3, 4));
}

}  // namespace
}  // namespace lamina::testing
