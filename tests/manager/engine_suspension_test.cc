// What the engine does when memory nodes are late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/manager/engine_outage_fixture.h"

namespace lamina::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EngineSuspensionTest : public EngineOutageTest {};

// Its step is answered without it, and its node is late but not lost.
TEST_F(EngineSuspensionTest, SequencesOfASuspendedNodeSitOutAndGoOnWhereTheyWere) {
  options_.max_rebuilds = 0;
  CreateWithTwoMemoryNodes();
  const Collector first = Submit({1, 2}, 4), second = Submit({1, 2}, 4);
  Tell(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan plan = NextSubmitted();
  ASSERT_EQ(plan.work.size(), 2u);
  const NodeId late = plan.work[0].route[0].node;
  Tell({ExecutorEvent::Kind::kNodeSuspended, {}, late, TimedOut("m1: no attention output")});
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
  for (; !nodes_->submitted.empty(); Tell(FakeExecutor::Answer(NextSubmitted()))) {
  }
  EXPECT_THAT(Result(second).tokens, ElementsAre(20, 30, 40, 50)) << "it does not wait";
  EXPECT_THAT(first.results()[0].tokens, ElementsAre(20));
  Tell({ExecutorEvent::Kind::kNodeResumed, {}, late, OkStatus()});
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kReady);
  EXPECT_TRUE(nodes_->submitted.front().work[0].again);
  for (; !nodes_->submitted.empty(); Tell(FakeExecutor::Answer(NextSubmitted()))) {
  }
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
  for (const NodeId node : {kNode, kPart})
    Tell({ExecutorEvent::Kind::kNodeSuspended, {}, node, TimedOut("late")});
  ExecutorEvent answer = FakeExecutor::Answer(plan);
  answer.result.sampled.clear();
  Tell(answer);
  Tell({ExecutorEvent::Kind::kNodeResumed, {}, kNode, OkStatus()});
  EXPECT_TRUE(nodes_->submitted.empty());
  Tell({ExecutorEvent::Kind::kNodeResumed, {}, kPart, OkStatus()});
  for (; !nodes_->submitted.empty(); Tell(FakeExecutor::Answer(NextSubmitted()))) {
  }
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30, 40));
}

TEST_F(EngineSuspensionTest, ANodeIsSuspendedAsLongAsOneComputeNodeWaitsForItNoLonger) {
  Create();
  const Collector collector = Submit({1, 2}, 3);
  Tell(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan plan = NextSubmitted();
  const auto suspend = [&](NodeId by, uint64_t suspension) {
    Tell({.kind = ExecutorEvent::Kind::kNodeSuspended,
          .result = {},
          .node = kNode,
          .status = TimedOut("late"),
          .by = by,
          .suspension = suspension});
  };
  const auto resume = [&](NodeId by, uint64_t suspension) {
    Tell({.kind = ExecutorEvent::Kind::kNodeResumed,
          .result = {},
          .node = kNode,
          .status = OkStatus(),
          .by = by,
          .suspension = suspension});
  };
  constexpr NodeId kFirst{8}, kSecond{9};
  suspend(kFirst, 1);
  suspend(kSecond, 1);
  ExecutorEvent answer = FakeExecutor::Answer(plan);
  answer.result.sampled.clear();
  Tell(answer);
  resume(kFirst, 1);
  suspend(kFirst, 1);  // a result that has gone on without it comes late
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kSuspended);
  EXPECT_TRUE(nodes_->submitted.empty());
  resume(kSecond, 1);
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kReady);
  for (; !nodes_->submitted.empty(); Tell(FakeExecutor::Answer(NextSubmitted()))) {
  }
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30, 40));
}

TEST_F(EngineSuspensionTest, ASuspendedNodeThatIsLostIsNotSuspendedAnyMore) {
  CreateWithTwoMemoryNodes();
  const Collector collector = Submit({1, 2}, 3);
  Tell(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan plan = NextSubmitted();
  const NodeId node = plan.work[0].route[0].node;
  Tell({ExecutorEvent::Kind::kNodeSuspended, {}, node, TimedOut("late")});
  ExecutorEvent answer = FakeExecutor::Answer(plan);
  answer.result.sampled.clear();
  Tell(answer);
  EXPECT_TRUE(nodes_->submitted.empty());
  Lose(node);
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kLost);
  Tell({ExecutorEvent::Kind::kNodeSuspended, {}, node, TimedOut("late")});
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kLost) << "that came too late";
  for (; !nodes_->submitted.empty(); Tell(FakeExecutor::Answer(NextSubmitted()))) {
  }
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30, 40));
}

}  // namespace
}  // namespace lamina::testing
