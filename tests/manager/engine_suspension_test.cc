// What the engine does when memory nodes are late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/manager/engine_outage_fixture.h"

namespace lamina::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EngineSuspensionTest : public EngineOutageTest {
 protected:
  // A compute node waits for the memory node no longer.
  void Suspend(NodeId node, const std::string& why = "late", NodeId by = kCompute,
               uint64_t suspension = 1) {
    Tell({.kind = ExecutorEvent::Kind::kNodeSuspended,
          .result = {},
          .node = node,
          .status = TimedOut(why),
          .by = by,
          .suspension = suspension});
  }
  // It has answered that compute node.
  void Resume(NodeId node, NodeId by = kCompute, uint64_t suspension = 1) {
    Tell({.kind = ExecutorEvent::Kind::kNodeResumed,
          .result = {},
          .node = node,
          .status = OkStatus(),
          .by = by,
          .suspension = suspension});
  }
  // The step comes back without a token.
  void AnswerWithNothing(const StepPlan& plan) {
    ExecutorEvent answer = FakeExecutor::Answer(plan);
    answer.result.sampled.clear();
    Tell(answer);
  }
};

// Its step is answered without it, and its node is late but not lost.
TEST_F(EngineSuspensionTest, SequencesOfASuspendedNodeSitOutAndGoOnWhereTheyWere) {
  options_.max_rebuilds = 0;
  CreateWithTwoMemoryNodes();
  const Collector first = Submit({1, 2}, 4), second = Submit({1, 2}, 4);
  Tell(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan plan = NextSubmitted();
  ASSERT_EQ(plan.work.size(), 2u);
  const NodeId late = plan.work[0].route[0].node;
  Suspend(late, "m1: no attention output");
  ExecutorEvent answer = FakeExecutor::Answer(plan);
  std::erase_if(answer.result.sampled,
                [&](const NewToken& token) { return token.sequence == plan.work[0].sequence; });
  Tell(answer);
  const EngineStatus status = engine_->status();
  EXPECT_TRUE(status.serving);
  EXPECT_EQ(status.scheduler.num_suspended, 1);
  EXPECT_EQ(status.num_rebuilding, 0);
  EXPECT_EQ(status.nodes[0].state, NodeState::kSuspended);
  EXPECT_THAT(status.nodes[0].detail, HasSubstr("no attention output"));
  AnswerAll();
  EXPECT_THAT(Result(second).tokens, ElementsAre(20, 30, 40, 50)) << "it does not wait";
  EXPECT_THAT(first.results()[0].tokens, ElementsAre(20));
  Resume(late);
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kReady);
  EXPECT_TRUE(nodes_->submitted.front().work[0].again);
  AnswerAll();
  EXPECT_THAT(Result(first).tokens, ElementsAre(20, 30, 40, 50));
  EXPECT_EQ(engine_->status().scheduler.num_started_tokens, 4) << "both prompts, once";
}

TEST_F(EngineSuspensionTest, AGroupIsSuspendedAsLongAsOneOfItsNodesIs) {
  constexpr NodeId kPart{5};
  nodes_->groups = {{kPart, kNode}};
  Create();
  const Collector collector = Submit({1, 2}, 3);
  Tell(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan plan = NextSubmitted();
  for (const NodeId node : {kNode, kPart}) Suspend(node);
  AnswerWithNothing(plan);
  Resume(kNode);
  EXPECT_TRUE(nodes_->submitted.empty());
  Resume(kPart);
  AnswerAll();
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30, 40));
}

TEST_F(EngineSuspensionTest, ANodeIsSuspendedAsLongAsOneComputeNodeWaitsForItNoLonger) {
  Create();
  const Collector collector = Submit({1, 2}, 3);
  Tell(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan plan = NextSubmitted();
  constexpr NodeId kFirst{8}, kSecond{9};
  Suspend(kNode, "late", kFirst);
  Suspend(kNode, "late", kSecond);
  AnswerWithNothing(plan);
  Resume(kNode, kFirst);
  Suspend(kNode, "late", kFirst);  // a result that has gone on without it comes late
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kSuspended);
  EXPECT_TRUE(nodes_->submitted.empty());
  Resume(kNode, kSecond);
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kReady);
  AnswerAll();
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30, 40));
}

TEST_F(EngineSuspensionTest, ASuspendedNodeThatIsLostIsNotSuspendedAnyMore) {
  CreateWithTwoMemoryNodes();
  const Collector collector = Submit({1, 2}, 3);
  Tell(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan plan = NextSubmitted();
  const NodeId node = plan.work[0].route[0].node;
  Suspend(node);
  AnswerWithNothing(plan);
  EXPECT_TRUE(nodes_->submitted.empty());
  Lose(node);
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kLost);
  Suspend(node);
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kLost) << "that came too late";
  AnswerAll();
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30, 40));
}

}  // namespace
}  // namespace lamina::testing
