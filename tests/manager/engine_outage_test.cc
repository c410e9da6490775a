// What the engine does when nodes are lost and when they come back, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/manager/engine_outage_fixture.h"

namespace lamina::testing {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

constexpr nanoseconds kMoment{1};

// The step in flight has a token for it too, which is sampled again, and told once.
TEST_F(EngineOutageTest, SequencesOfALostNodeStartAgainWithTheTokensThatWereTold) {
  CreateWithTwoMemoryNodes();
  const Collector first = Submit({1, 2}, 3), second = Submit({1, 2}, 3);
  Tell(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan plan = NextSubmitted();
  ASSERT_EQ(plan.work.size(), 2u);
  Lose(kNode);
  EXPECT_THAT(nodes_->left, ElementsAre(kNode))
      << "it has to be free of the session that it may still have";
  EXPECT_EQ(engine_->status().num_rebuilding, 1);
  Tell(FakeExecutor::Answer(plan));
  EXPECT_THAT(first.results()[0].tokens, ElementsAre(20)) << "that one does not count";
  EXPECT_THAT(second.results()[0].tokens, ElementsAre(20));
  AnswerAll();
  EXPECT_THAT(Result(first).tokens, ElementsAre(20, 30, 40));
  EXPECT_THAT(Result(second).tokens, ElementsAre(20, 30, 40));
  EXPECT_EQ(nodes_->announced.back().tokens, (std::vector<TokenId>{1, 2, 20}));
  EXPECT_EQ(nodes_->announced.back().num_prompt_tokens, 2);
  EXPECT_EQ(engine_->status().num_rebuilding, 0);
  EXPECT_TRUE(engine_->status().serving);
  EXPECT_EQ(engine_->status().nodes[0].state, NodeState::kLost);
}

// Whether its failure or the node's loss is known first.
TEST_F(EngineOutageTest, AFailureOfAStepBeforeTheLossDoesNotConcernTheNewStart) {
  options_.max_rebuilds = 1;
  CreateWithTwoMemoryNodes();
  const Collector collector = Submit({1, 2}, 3);
  Tell(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan plan = NextSubmitted();
  ASSERT_EQ(plan.work.size(), 1u);
  Lose(plan.work[0].route[0].node);
  ExecutorEvent late = FakeExecutor::Answer(plan);
  late.result.sampled.clear();
  late.result.failed.push_back(
      {plan.work[0].sequence, PeerLost("its row was lost"), FailureCause::kKvLost});
  Tell(late);
  EXPECT_FALSE(collector.results()[0].finished) << "one loss, however often it is told";
  AnswerAll();
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30, 40));
}

TEST_F(EngineOutageTest, WhatNoNodeCanHoldWaitsForOneUntilItsTimeIsOver) {
  nodes_->kv_nodes = {{kNode, 40}, {kOther, 90}};
  Create();
  const Collector large = Submit({1, 2}, 60);
  Lose(kOther);
  EXPECT_EQ(engine_->status().scheduler.num_parked, 1);
  EXPECT_TRUE(engine_->status().serving) << "others are served";
  engine_->Advance(seconds(60) - kMoment);
  EXPECT_FALSE(large.results()[0].finished);
  engine_->Advance(kMoment);
  EXPECT_EQ(Result(large).reason, FinishReason::kError);
  EXPECT_THAT(
      Result(large).error.message(),
      HasSubstr("lost node 2: test; no node came that could hold the request, within 60 s"));
  EXPECT_EQ(engine_->status().scheduler.num_parked, 0);
}

TEST_F(EngineOutageTest, WhatIsParkedGoesOnWhenItsNodeComesBack) {
  nodes_->kv_nodes = {{kNode, 40}, {kOther, 90}};
  Create();
  GenerateRequest request = GreedyRequest({1, 2}, 60);
  request.ignore_eos = true;
  const Collector large;
  ASSERT_TRUE(engine_->Submit(request, large.sink()).ok());
  Lose(kOther);
  engine_->Advance(seconds(30));
  engine_->Found({kOther});
  NextTask();
  Reconnect();
  EXPECT_EQ(Result(large).tokens.size(), 60u);
  engine_->Advance(seconds(60));
  EXPECT_EQ(Result(large).reason, FinishReason::kLength);
}

TEST_F(EngineOutageTest, WhatRanStartsAgainWithItsTokens) {
  Create();
  const Collector first = Submit({1, 2}, 3);
  Tell(FakeExecutor::Answer(NextSubmitted()));
  const StepPlan in_flight = NextSubmitted();
  Lose(kCompute);
  const ReconnectTask task = NextTask();
  EXPECT_NE(task.before, nullptr) << "its sessions keep the nodes busy";
  EXPECT_THAT(task.known.lost, ElementsAre(Key(kCompute)));
  EXPECT_THAT(task.doubtful, IsEmpty());
  EXPECT_EQ(task.until, start_ + seconds(60));
  EXPECT_TRUE(engine_->status().serving);
  EXPECT_EQ(engine_->status().nodes.front().state, NodeState::kReconnecting);
  Tell(FakeExecutor::Answer(in_flight));  // too late: nobody knows that step any more
  const Collector meanwhile = Submit({1}, 1), aborted;
  const auto unwanted = engine_->Submit(GreedyRequest({1}, 1), aborted.sink());
  ASSERT_TRUE(unwanted.ok());
  engine_->Abort(*unwanted);
  EXPECT_EQ(Result(aborted).reason, FinishReason::kAbort);
  engine_->Advance(seconds(7));
  Reconnect();
  EXPECT_THAT(Result(first).tokens, ElementsAre(20, 30, 40));
  EXPECT_EQ(Result(meanwhile).reason, FinishReason::kLength);
  EXPECT_EQ(engine_->status().scheduler.num_running, 0);
  ASSERT_FALSE(nodes_->announced.empty());
  EXPECT_THAT(nodes_->announced[0].tokens, ElementsAre(1, 2, 20));
  EXPECT_EQ(nodes_->announced[0].num_prompt_tokens, 2);
}

// Compute nodes that live do not hear each other.
TEST_F(EngineOutageTest, WhereNoNodeIsLostAllAreConnectedAnew) {
  Create();
  const Collector collector = Submit({1, 2}, 2);
  Tell(FakeExecutor::Lost(ExecutorEvent::Kind::kComputeLost, NodeId{}));
  EXPECT_THAT(NextTask().known.lost, IsEmpty());
  Reconnect();
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30));
  for (const NodeStatus& node : engine_->status().nodes)
    EXPECT_EQ(node.state, NodeState::kReady) << node.name;
}

TEST_F(EngineOutageTest, TheStatusSaysWhenConnectingTakesLong) {
  Create();
  Lose(kCompute);
  engine_->Advance(seconds(5) - kMoment);
  EXPECT_FALSE(engine_->status().stands_still);
  engine_->Advance(kMoment);
  EXPECT_TRUE(engine_->status().stands_still);
  EXPECT_TRUE(engine_->status().serving) << "requests wait";
  EXPECT_EQ(engine_->status().detail, "nodes are being connected anew for 5 s: requests wait");
  const Collector collector = Submit({1, 2}, 2);
  Reconnect();
  EXPECT_EQ(Result(collector).reason, FinishReason::kLength);
  EXPECT_FALSE(engine_->status().stands_still);
  EXPECT_EQ(engine_->status().detail, "");
}

TEST_F(EngineOutageTest, AMemoryNodeThatDidNotComeBackParksWhatOnlyItCouldHold) {
  nodes_->kv_nodes = {{kNode, 40}, {kOther, 90}};
  Create();
  const Collector large = Submit({1, 2}, 60), small = Submit({1, 2}, 2);
  Lose(kCompute);
  Reconnect({{kOther, "lost memory node m2: test"}});
  EXPECT_FALSE(large.results()[0].finished);
  EXPECT_EQ(engine_->status().scheduler.num_parked, 1) << "it fits no node that is left";
  EXPECT_EQ(Result(small).reason, FinishReason::kLength);
  EXPECT_TRUE(engine_->status().serving);
}

TEST_F(EngineOutageTest, RequestsWaitInAnOutageAndEndWithItsReasonIfItLasts) {
  Create();
  const Collector collector = Submit({1, 2}, 3);
  Lose(kCompute);
  engine_->Reconnected(PeerLost("no compute node is left: test"));
  const Collector meanwhile = Submit({1, 2}, 3);
  EXPECT_FALSE(engine_->status().serving);
  EXPECT_FALSE(engine_->status().given_up);
  engine_->reconnects.clear();
  engine_->Reconnected(PeerLost("no compute node is left: test"));
  engine_->Advance(seconds(60) - kMoment);
  EXPECT_FALSE(collector.results()[0].finished);
  engine_->reconnects.clear();
  engine_->Advance(kMoment);
  engine_->Reconnected(PeerLost("no compute node is left: test"));
  for (const Collector& each : {collector, meanwhile}) {
    EXPECT_EQ(Result(each).reason, FinishReason::kError);
    EXPECT_THAT(Result(each).error.message(), HasSubstr("no compute node is left"));
  }
  EXPECT_TRUE(engine_->status().given_up);
}

// A memory node dies after it was configured and before the executor starts: it is said twice.
TEST_F(EngineOutageTest, AMemoryNodeThatDiesWhileOthersAreReconnectedGetsNoRequests) {
  CreateWithTwoMemoryNodes();
  Lose(kCompute);
  auto next = std::make_shared<FakeExecutor::Shared>();
  next->kv_nodes = nodes_->kv_nodes;
  next->lost = {{kOther, "lost memory node m2: test"}};
  next->when_started = {FakeExecutor::Lost(ExecutorEvent::Kind::kNodeLost, kOther)};
  next->answer_at_once = false;
  ReconnectAs(next);
  for (int i = 0; i < 10; ++i) Submit({1, 2}, 2);
  const EngineStatus status = engine_->status();
  ASSERT_EQ(status.scheduler.nodes.size(), 1u);
  EXPECT_EQ(status.scheduler.nodes[0].id, kNode);
  EXPECT_EQ(status.nodes[1].state, NodeState::kLost);
  ASSERT_FALSE(next->submitted.empty());
  for (const StepPlan& plan : next->submitted) {
    for (const Work& work : plan.work) EXPECT_EQ(work.route[0].node, kNode);
  }
}

TEST_F(EngineOutageTest, WhileOthersServeALostNodeIsLookedForAtTimesThatGrow) {
  CreateWithTwoMemoryNodes();
  Lose(kOther);
  for (const int at : {1, 2, 4, 8, 16, 26, 36}) {
    engine_->Advance(seconds(at) - SinceStart() - kMoment);
    EXPECT_THAT(engine_->looks, IsEmpty()) << at;
    engine_->Advance(kMoment);
    ASSERT_EQ(engine_->looks.size(), 1u) << at;
    EXPECT_THAT(engine_->looks.front(), ElementsAre(Key(kOther)));
    engine_->looks.pop_front();
    engine_->Found({});
  }
  EXPECT_THAT(engine_->reconnects, IsEmpty()) << "those that serve are left alone meanwhile";
  EXPECT_EQ(engine_->status().scheduler.nodes.size(), 1u);
  engine_->Advance(seconds(1000));
  EXPECT_EQ(engine_->looks.size(), 1u) << "while somebody looks nobody else does";
  EXPECT_TRUE(engine_->core().given_up().ok());
}

TEST_F(EngineOutageTest, AMemoryNodeThatAnswersAgainGetsAnEmptyPool) {
  CreateWithTwoMemoryNodes();
  Lose(kOther);
  engine_->Advance(seconds(1));
  engine_->Found({kOther});
  EXPECT_THAT(NextTask().known.lost, IsEmpty());
  Reconnect();
  ASSERT_EQ(engine_->status().scheduler.nodes.size(), 2u);
  EXPECT_EQ(engine_->status().scheduler.nodes[1].used_tokens, 0);
  EXPECT_EQ(engine_->status().nodes[1].state, NodeState::kReady);
  ExpectServes();
}

TEST_F(EngineOutageTest, ANodeThatIsLostSoonAfterItsReturnWaitsFourTimesAsLong) {
  CreateWithTwoMemoryNodes();
  for (const int wait : {1, 4, 16}) {
    const TimePoint lost = engine_->now();
    Lose(kOther);
    engine_->Advance(seconds(wait) - kMoment);
    EXPECT_THAT(engine_->looks, IsEmpty()) << wait;
    engine_->Advance(kMoment);
    ASSERT_EQ(engine_->looks.size(), 1u);
    EXPECT_EQ(engine_->now() - lost, seconds(wait));
    engine_->looks.clear();
    engine_->Found({kOther});
    engine_->reconnects.clear();
    Reconnect();
  }
}

// What a manager finds that was paused for long: everybody has left it.
TEST_F(EngineOutageTest, ServesAgainWhenAllWereLostAndAllAnswer) {
  CreateWithTwoMemoryNodes();
  const Collector collector = Submit({1, 2}, 5);
  const auto before = nodes_;
  const StepPlan old = NextSubmitted();
  for (const NodeId node : {kNode, kOther, kCompute}) {
    nodes_->on_event(FakeExecutor::Lost(
        node == kCompute ? ExecutorEvent::Kind::kComputeLost : ExecutorEvent::Kind::kNodeLost,
        node));
  }
  engine_->Settle();
  EXPECT_FALSE(engine_->status().serving);
  EXPECT_THAT(engine_->status().detail, HasSubstr("waiting for nodes to come back, for 60 s"));
  const Collector meanwhile = Submit({1}, 1);
  EXPECT_EQ(engine_->status().scheduler.num_parked, 2);
  EXPECT_THAT(NextTask().doubtful, UnorderedElementsAre(Key(kNode), Key(kOther)));
  Reconnect();
  before->on_event(FakeExecutor::Answer(old));
  engine_->Settle();
  ExpectServes();
  EXPECT_EQ(engine_->status().scheduler.nodes.size(), 2u);
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30, 40, 50, 60));
  EXPECT_EQ(Result(meanwhile).reason, FinishReason::kLength);
}

TEST_F(EngineOutageTest, AnOutageIsTriedToBeEndedAtTimesThatGrowUntilTheEngineGivesUp) {
  Create();
  const Collector collector = Submit({1, 2}, 5);
  Lose(kCompute);
  EXPECT_THAT(NextTask().known.lost, ElementsAre(Key(kCompute)));
  engine_->Reconnected(PeerLost("no compute node is left: test"));
  for (const int at : {0, 1, 3, 7, 15, 25, 35, 45, 55}) {
    if (at > 0) {
      engine_->Advance(seconds(at) - SinceStart() - kMoment);
      EXPECT_THAT(engine_->reconnects, IsEmpty()) << at;
      engine_->Advance(kMoment);
    }
    const ReconnectTask task = NextTask();
    EXPECT_EQ(task.before, nullptr);
    EXPECT_THAT(task.known.lost, IsEmpty());
    EXPECT_THAT(task.doubtful, ElementsAre(Key(kCompute))) << "it may answer by now";
    EXPECT_EQ(task.until, start_ + seconds(60));
    engine_->Reconnected(PeerLost("no compute node is left: test"));
  }
  engine_->Advance(seconds(60) - SinceStart() - kMoment);
  EXPECT_TRUE(engine_->core().given_up().ok());
  engine_->Advance(kMoment);
  EXPECT_THAT(engine_->core().given_up().message(),
              HasSubstr("no compute node is left: test; no node came back that would do, within "
                        "60 s"));
  EXPECT_FALSE(engine_->status().serving);
  EXPECT_EQ(engine_->status().nodes.front().state, NodeState::kGivenUp);
  engine_->Advance(seconds(100));
  EXPECT_THAT(engine_->reconnects, IsEmpty());
  EXPECT_EQ(engine_->Submit(GreedyRequest({1}, 1), collector.sink()).status().code(),
            StatusCode::kPeerLost);
}

TEST_F(EngineOutageTest, TheOnlyComputeNodeMayComeBack) {
  Create();
  Lose(kCompute);
  engine_->Reconnected(PeerLost("no compute node is left: test"));
  EXPECT_THAT(engine_->status().detail, HasSubstr("no compute node is left"));
  engine_->Advance(seconds(30));
  EXPECT_THAT(engine_->status().detail, HasSubstr("for 30 s at most"));
  Reconnect();
  ExpectServes();
  EXPECT_EQ(engine_->status().detail, "");
}

// That one is left out of the first try, as any node that is lost while others serve.
TEST_F(EngineOutageTest, AnOutageInWhichANodeWasLostBeforeEndsToo) {
  nodes_->lost = {{kOther, "lost memory node m2: test"}};
  CreateWithTwoMemoryNodes();
  Lose(kCompute);
  EXPECT_THAT(NextTask().known.lost, UnorderedElementsAre(Key(kOther), Key(kCompute)));
  engine_->Reconnected(PeerLost("no compute node is left: test"));
  EXPECT_THAT(NextTask().doubtful, UnorderedElementsAre(Key(kOther), Key(kCompute)));
  Reconnect();
  ExpectServes();
  EXPECT_EQ(engine_->status().scheduler.nodes.size(), 2u);
}

// Each try waits as long as it may. The last one tells only that its time was over.
TEST_F(EngineOutageTest, GivesUpInTimeHoweverLongATryTakes) {
  Create();
  Lose(kCompute);
  NextTask();
  engine_->Reconnected(PeerLost("no compute node is left: test"));
  engine_->Advance(NextTask().until - engine_->now());
  EXPECT_TRUE(engine_->core().given_up().ok()) << "somebody still tries";
  engine_->Reconnected(TimedOut("the time was over"));
  EXPECT_THAT(engine_->core().given_up().message(),
              HasSubstr("no compute node is left: test; no node came back that would do"));
}

// The first one too, before anybody knows that it is an outage.
TEST_F(EngineOutageTest, GivesUpInTimeHoweverLongTheFirstTryTakes) {
  Create();
  const Collector collector = Submit({1, 2}, 2);
  Lose(kCompute);
  engine_->Advance(NextTask().until - engine_->now());
  engine_->Reconnected(TimedOut("memory node m1 did not answer: test"));
  EXPECT_THAT(engine_->core().given_up().message(),
              HasSubstr("memory node m1 did not answer: test"));
  EXPECT_EQ(Result(collector).reason, FinishReason::kError);
  EXPECT_EQ(engine_->status().scheduler.num_running, 0);
}

// The pause counts from the turn that was due a second after the last one.
TEST_F(EngineOutageTest, APauseOfTheManagerIsNoFaultOfNodes) {
  options_.step_timeout = seconds(10);
  Create();
  const Collector collector = Submit({1, 2}, 9);
  engine_->Advance(seconds(8));
  engine_->Pause(seconds(31));
  EXPECT_THAT(engine_->reconnects, IsEmpty()) << "its deadline would have passed long ago";
  engine_->Advance(seconds(1) - kMoment);
  EXPECT_THAT(engine_->reconnects, IsEmpty()) << "30 of the 31 s do not count";
  engine_->Advance(kMoment);
  EXPECT_EQ(engine_->reconnects.size(), 1u);
}

TEST_F(EngineOutageTest, WhatIsLostSoonAfterAPauseIsToldWithIt) {
  CreateWithTwoMemoryNodes();
  const Collector first = Submit({1, 2}, 9), second = Submit({1, 2}, 9);
  engine_->Pause(seconds(8));
  Lose(kNode);
  EXPECT_THAT(engine_->status().nodes[0].detail,
              HasSubstr("; the manager itself had not run for 7 s"));
  engine_->Advance(seconds(5) + kMoment);
  Lose(kOther);
  EXPECT_EQ(engine_->status().nodes[1].detail.find("had not run"), std::string::npos);
}

TEST_F(EngineOutageTest, APauseIsNoTimeInWhichNodesCouldComeBack) {
  Create();
  Lose(kCompute);
  NextTask();
  engine_->Reconnected(PeerLost("no compute node is left: test"));
  NextTask();
  engine_->Pause(seconds(101));
  engine_->Reconnected(PeerLost("no compute node is left: test"));
  EXPECT_TRUE(engine_->core().given_up().ok());
  EXPECT_THAT(engine_->status().detail, HasSubstr("for 59 s at most"));
}

TEST_F(EngineOutageTest, AStepThatIsNeverAnsweredStartsAgainOnNodesThatAnswer) {
  options_.step_timeout = seconds(10);
  Create();
  const Collector collector = Submit({1, 2}, 2);
  engine_->Advance(seconds(10) - kMoment);
  EXPECT_THAT(engine_->reconnects, IsEmpty());
  engine_->Advance(kMoment);
  const ReconnectTask task = NextTask();
  EXPECT_THAT(task.known.lost, IsEmpty());
  EXPECT_THAT(task.doubtful, ElementsAre(Key(kCompute)));
  EXPECT_EQ(task.until, start_ + seconds(10) + seconds(60));
  Reconnect();
  EXPECT_EQ(Result(collector).reason, FinishReason::kLength);
  EXPECT_THAT(Result(collector).tokens, ElementsAre(20, 30));
  ExpectServes();
}

TEST_F(EngineOutageTest, ARequestWhoseStepsAreNeverAnsweredFailsAlone) {
  options_.step_timeout = seconds(10);
  Create();
  const Collector collector = Submit({1, 2}, 2);
  engine_->Advance(seconds(10));
  NextTask();
  auto next = std::make_shared<FakeExecutor::Shared>();
  next->answer_at_once = false;
  ReconnectAs(next);
  engine_->Advance(seconds(1));
  const Collector waits = Submit({1, 2}, 2);
  engine_->Advance(seconds(9));
  EXPECT_EQ(Result(collector).reason, FinishReason::kError);
  EXPECT_THAT(Result(collector).error.message(), HasSubstr("was not answered within 10 s"));
  NextTask();
  Reconnect();
  EXPECT_EQ(Result(waits).reason, FinishReason::kLength);
  ExpectServes();
}

}  // namespace
}  // namespace lamina::testing
