// Full nodes and lost nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/support/fake_cluster.h"

namespace lamina {
namespace scheduler_preemption_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const SchedulerOptions kOptions{
    .max_num_seqs = 8, .max_num_batched_tokens = 64, .max_model_len = 500, .max_queued = 100};

std::vector<uint64_t> Ids(const StepPlan& plan) {
  std::vector<uint64_t> ids;
  for (const Work& work : plan.work) ids.push_back(work.sequence.value);
  return ids;
}

// Steps until a plan releases something.
StepPlan StepUntilRelease(FakeCluster& cluster) {
  for (int i = 0; i < 1000; ++i) {
    StepPlan plan = cluster.Step();
    if (!plan.released.empty()) return plan;
  }
  ADD_FAILURE() << "no release";
  return {};
}

TEST(Preemption, TakesTheNewestPutsItInFrontAndRecomputesAllItsTokens) {
  FakeCluster cluster(kOptions, {KvNode{NodeId{0}, 100}});
  ASSERT_TRUE(cluster.Add(1, 20, 60).ok());
  ASSERT_TRUE(cluster.Add(2, 20, 60).ok());
  EXPECT_THAT(Ids(cluster.Step()), ElementsAre(1, 2));
  ASSERT_TRUE(cluster.Add(3, 50, 10).ok());  // does not fit beside them
  const StepPlan full = StepUntilRelease(cluster);
  EXPECT_THAT(full.released, ElementsAre(SequenceId{2}));
  EXPECT_THAT(Ids(full), ElementsAre(1))
      << "2 is not started again at once, and 3 does not overtake it";
  EXPECT_EQ(cluster.scheduler().stats().num_preemptions, 1);
  EXPECT_EQ(cluster.scheduler().stats().num_waiting, 2);
  EXPECT_EQ(full.work[0].first_position, 50) << "it was preempted before the node was full";

  const StepPlan end_of_1 = StepUntilRelease(cluster);
  EXPECT_THAT(end_of_1.released, ElementsAre(SequenceId{1}));
  EXPECT_EQ(Ids(end_of_1).front(), 2u);
  EXPECT_TRUE(end_of_1.work[0].prefill);
  EXPECT_EQ(end_of_1.work[0].tokens, GenerateAlone(MakePrompt(SequenceId{2}, 20), 31));
  EXPECT_TRUE(end_of_1.work[0].sample);
  cluster.RunUntilIdle();
  for (const uint64_t id : {1, 2})
    EXPECT_EQ(cluster.results().at(SequenceId{id}),
              GenerateAlone(MakePrompt(SequenceId{id}, 20), 60));
  EXPECT_EQ(cluster.results().at(SequenceId{3}), GenerateAlone(MakePrompt(SequenceId{3}, 50), 10));
}

// The same with room outside: one row in place of 51.
TEST(Preemption, TheSequenceGoesOnWithWhatWasSwappedOut) {
  SchedulerOptions options = kOptions;
  options.swap_tokens = 50;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}});
  ASSERT_TRUE(cluster.Add(1, 20, 60).ok());
  ASSERT_TRUE(cluster.Add(2, 20, 60).ok());
  const StepPlan full = StepUntilRelease(cluster);
  EXPECT_THAT(full.released, ElementsAre(SequenceId{2}));
  ASSERT_EQ(full.swapped_out.size(), 1u);
  EXPECT_EQ(full.swapped_out[0].sequence, SequenceId{2});
  EXPECT_EQ(full.swapped_out[0].num_tokens, 50);
  EXPECT_THAT(full.swapped_in, IsEmpty());

  const StepPlan end_of_1 = StepUntilRelease(cluster);
  ASSERT_EQ(end_of_1.swapped_in.size(), 1u);
  EXPECT_EQ(end_of_1.swapped_in[0].num_tokens, 50);
  ASSERT_EQ(end_of_1.work.size(), 1u);
  const Work& work = end_of_1.work[0];
  EXPECT_FALSE(work.prefill);
  EXPECT_TRUE(work.sample);
  EXPECT_EQ(work.first_position, 50);
  EXPECT_EQ(work.tokens.size(), 1u);
  EXPECT_EQ(work.route[0].shared.size(), 50u);
  cluster.RunUntilIdle();
  for (const uint64_t id : {1, 2})
    EXPECT_EQ(cluster.results().at(SequenceId{id}),
              GenerateAlone(MakePrompt(SequenceId{id}, 20), 60));
}

TEST(Preemption, WhatFindsNoRoomOutsideIsComputedAgain) {
  SchedulerOptions options = kOptions;
  options.swap_tokens = 49;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}});
  ASSERT_TRUE(cluster.Add(1, 20, 60).ok());
  ASSERT_TRUE(cluster.Add(2, 20, 60).ok());
  EXPECT_THAT(StepUntilRelease(cluster).swapped_out, IsEmpty());
  const StepPlan end_of_1 = StepUntilRelease(cluster);
  EXPECT_THAT(end_of_1.swapped_in, IsEmpty());
  EXPECT_EQ(end_of_1.work.at(0).tokens.size(), 51u);
  cluster.RunUntilIdle();
}

TEST(Preemption, PreemptsAPartlyPrefilledSequence) {
  SchedulerOptions options = kOptions;
  options.max_num_batched_tokens = 2;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}});
  ASSERT_TRUE(cluster.Add(1, 2, 90).ok());
  cluster.Step();
  // One token per step beside the decoding row; its 60 slots leave 38 for sequence 1.
  ASSERT_TRUE(cluster.Add(2, 60, 1).ok());
  const StepPlan full = StepUntilRelease(cluster);
  EXPECT_THAT(full.released, ElementsAre(SequenceId{2}));
  EXPECT_THAT(Ids(full), ElementsAre(1));
  EXPECT_EQ(full.work[0].first_position, 40);
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().at(SequenceId{2}), GenerateAlone(MakePrompt(SequenceId{2}, 60), 1));
}

TEST(Preemption, StartsLeaveRoomToGrow) {
  FakeCluster cluster(kOptions, {KvNode{NodeId{0}, 100}});
  ASSERT_TRUE(cluster.Add(1, 40, 60).ok());
  cluster.Step();
  // 41 + 50 slots fit, but both would need the same few next ones.
  ASSERT_TRUE(cluster.Add(2, 50, 50).ok());
  EXPECT_THAT(Ids(cluster.Step()), ElementsAre(1));
  // What can hardly grow needs little.
  cluster.Finish(2);
  ASSERT_TRUE(cluster.Add(3, 40, 1).ok());
  EXPECT_THAT(Ids(cluster.Step()), ElementsAre(1, 3));
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.nodes().num_preemptions(), 0);
}

TEST(Preemption, ASequenceMayFillTheWholeNode) {
  FakeCluster cluster(kOptions, {KvNode{NodeId{0}, 100}});
  ASSERT_TRUE(cluster.Add(1, 99, 1).ok());
  ASSERT_TRUE(cluster.Add(2, 1, 99).ok());
  ASSERT_TRUE(cluster.Add(3, 50, 50).ok());
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 3u);
}

TEST(Preemption, WhoOutgrowsASmallNodeMovesToALargeOne) {
  FakeCluster cluster(kOptions, {KvNode{NodeId{0}, 50}, KvNode{NodeId{1}, 100}});
  ASSERT_TRUE(cluster.Add(1, 20, 5).ok());
  ASSERT_TRUE(cluster.Add(2, 30, 60).ok());
  ASSERT_TRUE(cluster.Add(3, 20, 60).ok());
  const StepPlan start = cluster.Step();
  ASSERT_THAT(Ids(start), ElementsAre(1, 2, 3));
  EXPECT_EQ(start.work[0].route[0].node, NodeId{0});
  EXPECT_EQ(start.work[1].route[0].node, NodeId{1});
  ASSERT_EQ(start.work[2].route[0].node, NodeId{1});
  // Starts on the small node, which cannot hold it to its end.
  ASSERT_TRUE(cluster.Add(4, 1, 80).ok());
  const StepPlan small = cluster.Step();
  ASSERT_EQ(small.work.back().sequence, SequenceId{4});
  ASSERT_EQ(small.work.back().route[0].node, NodeId{0});
  cluster.RunUntilIdle();
  EXPECT_GE(cluster.nodes().num_preemptions(), 2);
  EXPECT_EQ(cluster.results().at(SequenceId{4}), GenerateAlone(MakePrompt(SequenceId{4}, 1), 80));
}

TEST(LostNode, ItsSequencesStartAgainElsewhere) {
  FakeCluster cluster(kOptions, {KvNode{NodeId{0}, 100}, KvNode{NodeId{1}, 100}});
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(cluster.Add(id, 10, 20).ok());
  cluster.Step();
  const StepPlan in_flight = cluster.Plan();
  EXPECT_THAT(Ids(in_flight), ElementsAre(1, 2, 3, 4));
  const LostSequences lost = cluster.LoseNode(0);
  EXPECT_THAT(lost.again, ElementsAre(SequenceId{1}, SequenceId{3}));
  EXPECT_THAT(lost.parked, IsEmpty());
  EXPECT_THAT(cluster.LoseNode(0).again, IsEmpty()) << "unknown by now";
  EXPECT_EQ(cluster.scheduler().Tokens(SequenceId{1}).size(), 11u) << "it keeps what it has";
  EXPECT_FALSE(cluster.scheduler().IsInStep(SequenceId{1}));
  EXPECT_TRUE(cluster.scheduler().IsInStep(SequenceId{2}));
  // Its answers may still arrive, and do not count.
  cluster.Complete();
  const StepPlan next = cluster.Step();
  EXPECT_THAT(next.released, ElementsAre(SequenceId{1}, SequenceId{3}))
      << "the compute node may hold their prefill";
  EXPECT_THAT(Ids(next), ElementsAre(2, 4)) << "nobody starts in the plan that releases it";
  EXPECT_EQ(cluster.scheduler().stats().nodes.size(), 1u);
  EXPECT_THAT(Ids(cluster.Step()), ElementsAre(2, 4, 1)) << "the oldest first, as far as they fit";
  cluster.AddNode({NodeId{0}, 100});
  const StepPlan back = cluster.Step();
  EXPECT_THAT(Ids(back), ElementsAre(1, 2, 4, 3));
  EXPECT_EQ(back.work.back().route[0].node, NodeId{0}) << "it comes back empty";
  ASSERT_TRUE(cluster.Add(5, 10, 20).ok());
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 5u);
}

// The step in flight of one batch reads what the sequence had; another batch must not start it
// anew meanwhile: nodes would take the old rows for its new ones, and the release that follows for
// that of the new start.
TEST(LostNode, NobodyStartsAgainWhileAStepInFlightHasRowsOfIt) {
  SchedulerOptions options = kOptions;
  options.num_batches = 2;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}, KvNode{NodeId{1}, 100}});
  ASSERT_TRUE(cluster.Add(1, 10, 20).ok());
  cluster.Plan(0);
  cluster.Complete(0);
  cluster.Plan(0);
  ASSERT_EQ(cluster.LoseNode(0).again.size(), 1u);
  EXPECT_TRUE(cluster.Plan(1).empty());
  cluster.Complete(0);
  const StepPlan release = cluster.Plan(1);
  EXPECT_THAT(release.released, ElementsAre(SequenceId{1}));
  EXPECT_TRUE(release.work.empty());
  EXPECT_THAT(Ids(cluster.Plan(1)), ElementsAre(1));
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().at(SequenceId{1}), GenerateAlone(MakePrompt(SequenceId{1}, 10), 20));
}

TEST(LostNode, WhatFitsNoOtherNodeIsParkedUntilOneComes) {
  SchedulerOptions options = kOptions;
  options.max_num_seqs = 2;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}, KvNode{NodeId{1}, 60}});
  ASSERT_TRUE(cluster.Add(1, 10, 20).ok());
  // Runs on the small node, which cannot hold it to its end.
  ASSERT_TRUE(cluster.Add(2, 10, 51).ok());
  cluster.Step();
  ASSERT_TRUE(cluster.Add(3, 30, 30).ok());
  ASSERT_TRUE(cluster.Add(4, 30, 31).ok());
  const LostSequences lost = cluster.LoseNode(0);
  EXPECT_THAT(lost.again, ElementsAre(SequenceId{1}));
  EXPECT_THAT(lost.parked, ElementsAre(SequenceId{2}, SequenceId{4}));
  EXPECT_EQ(cluster.scheduler().stats().num_waiting, 2);
  EXPECT_EQ(cluster.scheduler().stats().num_parked, 2);
  EXPECT_EQ(cluster.Add(5, 30, 31).code(), StatusCode::kInvalidArgument);
  for (int step = 0; step < 100; ++step) cluster.Step();
  EXPECT_EQ(cluster.results().size(), 2u);
  EXPECT_TRUE(cluster.scheduler().IsParked(SequenceId{2}));
  cluster.AddNode({NodeId{2}, 60});
  EXPECT_TRUE(cluster.scheduler().IsParked(SequenceId{2}));
  cluster.AddNode({NodeId{3}, 61});
  EXPECT_FALSE(cluster.scheduler().IsParked(SequenceId{2}));
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 4u);
}

TEST(LostNode, WithoutAnyNodeEverybodyIsParked) {
  SchedulerOptions options = kOptions;
  options.max_queued = 3;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}});
  ASSERT_TRUE(cluster.Add(2, 90, 5).ok());
  ASSERT_TRUE(cluster.Add(1, 90, 5).ok());
  cluster.Step();
  EXPECT_THAT(cluster.LoseNode(0).parked, ElementsAre(SequenceId{2}, SequenceId{1}));
  EXPECT_TRUE(cluster.Add(3, 10, 10).ok());
  EXPECT_EQ(cluster.Add(4, 10, 10).code(), StatusCode::kTryAgain) << "they count as queued";
  EXPECT_THAT(cluster.Step().released, ElementsAre(SequenceId{2}));
  EXPECT_TRUE(cluster.Step().empty());
  cluster.Finish(1);
  EXPECT_EQ(cluster.scheduler().stats().num_parked, 2);
  cluster.AddNode({NodeId{0}, 100});
  EXPECT_THAT(Ids(cluster.Step()), ElementsAre(2)) << "the oldest first";
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 2u);
}

TEST(SuspendedNode, ItsSequencesSitOutAndTheRowOfTheStepInFlightComesAgain) {
  FakeCluster cluster(kOptions, {KvNode{NodeId{0}, 100}, KvNode{NodeId{1}, 100}});
  for (const uint64_t id : {1, 2}) ASSERT_TRUE(cluster.Add(id, 10, 20).ok());
  cluster.Step();
  const StepPlan before = cluster.Plan();
  EXPECT_THAT(Ids(before), ElementsAre(1, 2));
  cluster.Suspend(0);
  cluster.Complete();
  EXPECT_EQ(cluster.scheduler().stats().num_suspended, 1);
  ASSERT_TRUE(cluster.Add(3, 10, 20).ok());
  const StepPlan meanwhile = cluster.Step();
  EXPECT_THAT(Ids(meanwhile), ElementsAre(2, 3));
  EXPECT_EQ(meanwhile.work[1].route[0].node, NodeId{1}) << "though the other one has more room";
  cluster.Resume(0);
  EXPECT_EQ(cluster.scheduler().stats().num_suspended, 0);
  const StepPlan again = cluster.Step();
  EXPECT_THAT(Ids(again), ElementsAre(1, 2, 3));
  EXPECT_TRUE(again.work[0].again);
  EXPECT_FALSE(again.work[1].again);
  EXPECT_EQ(again.work[0].route[0].slots, before.work[0].route[0].slots);
  EXPECT_EQ(cluster.scheduler().stats().num_started_tokens, 30) << "nothing is prefilled again";
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 3u);
}

// Half a prompt is computed again rather than that somebody waits with it.
TEST(SuspendedNode, WhatIsNotPrefilledYetStartsElsewhere) {
  SchedulerOptions options = kOptions;
  options.max_num_batched_tokens = 16;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}, KvNode{NodeId{1}, 90}});
  ASSERT_TRUE(cluster.Add(1, 40, 20).ok());
  EXPECT_EQ(cluster.Plan().work[0].route[0].node, NodeId{0});
  cluster.Suspend(0);
  cluster.Complete();
  EXPECT_THAT(cluster.Step().released, ElementsAre(SequenceId{1}));
  EXPECT_EQ(cluster.Step().work[0].route[0].node, NodeId{1});
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 1u);
}

TEST(SuspendedNode, WhatOnlyItCanHoldIsOvertaken) {
  FakeCluster cluster(kOptions, {KvNode{NodeId{0}, 100}, KvNode{NodeId{1}, 60}});
  cluster.Suspend(0);
  ASSERT_TRUE(cluster.Add(1, 10, 60).ok()) << "it is not lost";
  ASSERT_TRUE(cluster.Add(2, 10, 20).ok());
  EXPECT_THAT(Ids(cluster.Step()), ElementsAre(2));
  cluster.Suspend(1);
  EXPECT_TRUE(cluster.Step().empty());
  cluster.Resume(0);
  EXPECT_THAT(Ids(cluster.Step()), ElementsAre(1));
  cluster.Resume(1);
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 2u);
}

TEST(SuspendedNode, ThatIsLostInTheEndIsLostAsAnyOther) {
  FakeCluster cluster(kOptions, {KvNode{NodeId{0}, 100}, KvNode{NodeId{1}, 100}});
  ASSERT_TRUE(cluster.Add(1, 10, 20).ok());
  cluster.Step();
  cluster.Suspend(0);
  EXPECT_TRUE(cluster.Step().empty());
  EXPECT_THAT(cluster.LoseNode(0).again, ElementsAre(SequenceId{1}));
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().at(SequenceId{1}), GenerateAlone(MakePrompt(SequenceId{1}, 10), 20));
}

TEST(Again, SharesNothingOfWhatItHad) {
  SchedulerOptions options = kOptions;
  options.prefix_caching = true;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 200}});
  ASSERT_TRUE(cluster.Add(1, 20, 20).ok());
  for (int step = 0; step < 3; ++step) cluster.Step();
  const StepPlan in_flight = cluster.Plan();
  cluster.Again(1);
  cluster.Again(7);  // there is none
  EXPECT_FALSE(cluster.scheduler().IsInStep(SequenceId{1}));
  cluster.Complete();
  EXPECT_THAT(cluster.Step().released, ElementsAre(SequenceId{1}));
  const StepPlan start = cluster.Step();
  ASSERT_THAT(Ids(start), ElementsAre(1));
  EXPECT_EQ(start.work[0].first_position, 0) << "its own K and V may be wrong";
  EXPECT_EQ(start.work[0].tokens.size(), 23u) << "with the tokens that counted";
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 1u);
}

TEST(Replay, ComputesThePromptByPrefillAndTheRestByDecodeRows) {
  SchedulerOptions options = kOptions;
  options.replays_as_computed = true;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 8;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}});
  ASSERT_TRUE(cluster.Add(1, 10, 20).ok());
  for (int step = 0; step < 8; ++step) cluster.Step();
  ASSERT_EQ(cluster.scheduler().Tokens(SequenceId{1}).size(), 17u);
  cluster.Again(1);
  cluster.Step();
  struct Part {
    size_t num_tokens;
    bool prefill, ends_prefill, sample;
  };
  for (const Part& expected :
       {Part{8, true, false, false}, Part{2, true, true, false}, Part{4, false, false, false},
        Part{3, false, false, true}, Part{1, false, false, true}}) {
    const StepPlan plan = cluster.Step();
    ASSERT_EQ(plan.work.size(), 1u);
    EXPECT_EQ(plan.work[0].tokens.size(), expected.num_tokens);
    EXPECT_EQ(plan.work[0].prefill, expected.prefill);
    EXPECT_EQ(plan.work[0].ends_prefill, expected.ends_prefill);
    EXPECT_EQ(plan.work[0].sample, expected.sample);
  }
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().at(SequenceId{1}), GenerateAlone(MakePrompt(SequenceId{1}, 10), 20));
}

// What another scheduler left: five prompt tokens and three generated ones on a node of 100 slots,
// of which the last has no K and V.
class Left : public ::testing::Test {
 protected:
  static constexpr KvHandle kHandle{SequenceId{40}, 9};

  Left() : scheduler_(kOptions, MakeFifoQueue(), MakeLeastLoadedPlacement()) {
    scheduler_.AddNode({NodeId{1}, 100});
  }
  static SequenceSpec Rest(uint64_t id) {
    const std::vector<TokenId> tokens = GenerateAlone(MakePrompt(SequenceId{id}, 5), 3);
    SequenceSpec spec{SequenceId{id}, {tokens.begin(), tokens.begin() + 5}, 10};
    spec.generated.assign(tokens.begin() + 5, tokens.end());
    spec.left = kHandle;
    return spec;
  }
  int64_t num_used() const { return scheduler_.stats().nodes[0].used_tokens; }

  Scheduler scheduler_;
};

TEST_F(Left, ASequenceGoesOnBehindTheTokensThatAreThere) {
  scheduler_.AddLeft(kHandle, NodeId{1}, {3, 4, 5, 6, 7, 20, 21, 22, 23});
  EXPECT_EQ(num_used(), 9);
  ASSERT_TRUE(scheduler_.Add(Rest(1)).ok());
  EXPECT_EQ(num_used(), 7) << "what is behind its tokens is free";
  EXPECT_FALSE(scheduler_.has_left());
  EXPECT_EQ(scheduler_.stats().num_running, 1);
  EXPECT_EQ(scheduler_.stats().num_left_tokens, 7);
  EXPECT_EQ(scheduler_.stats().num_started_tokens, 0);
  EXPECT_TRUE(scheduler_.Held().empty()) << "no node knows yet whose they are";
  const StepPlan plan = scheduler_.NextStep();
  ASSERT_EQ(plan.work.size(), 1u);
  const Work& work = plan.work[0];
  EXPECT_TRUE(work.first && work.sample && !work.prefill && !work.again);
  EXPECT_EQ(work.first_position, 7);
  EXPECT_EQ(work.tokens.size(), 1u);
  ASSERT_EQ(work.route.size(), 1u);
  EXPECT_EQ(work.route[0].num_stored, 7);
  EXPECT_THAT(work.route[0].shared, ElementsAre(3, 4, 5, 6, 7, 20, 21));
  EXPECT_THAT(work.route[0].slots, ElementsAre(22));
  scheduler_.CompleteStep(std::vector<Scheduler::Sampled>{{SequenceId{1}, 5}});
  const StepPlan next = scheduler_.NextStep();
  EXPECT_FALSE(next.work[0].first);
  EXPECT_THAT(next.work[0].route[0].shared, IsEmpty());
  EXPECT_THAT(next.work[0].route[0].slots, ElementsAre(23));
}

TEST_F(Left, OneWhoseTokensAreNotAllThereStartsAgain) {
  scheduler_.AddLeft(kHandle, NodeId{1}, {3, 4, 5, 6, 7, 20});
  ASSERT_TRUE(scheduler_.Add(Rest(1)).ok());
  EXPECT_EQ(num_used(), 0) << "nobody can use them";
  EXPECT_EQ(scheduler_.stats().num_waiting, 1);
  EXPECT_TRUE(scheduler_.NextStep().work.at(0).prefill);
}

TEST_F(Left, OneWithoutAGeneratedTokenStartsAgain) {
  scheduler_.AddLeft(kHandle, NodeId{1}, {3, 4, 5, 6, 7, 20, 21});
  SequenceSpec spec = Rest(1);
  spec.generated.clear();
  ASSERT_TRUE(scheduler_.Add(spec).ok()) << "its first token was sampled behind prefill";
  EXPECT_EQ(scheduler_.stats().num_waiting, 1);
  EXPECT_TRUE(scheduler_.has_left());
}

TEST_F(Left, OnlyOneGoesOnAndTheOthersStartAgain) {
  scheduler_.AddLeft(kHandle, NodeId{1}, {3, 4, 5, 6, 7, 20, 21});
  ASSERT_TRUE(scheduler_.Add(Rest(1)).ok());
  ASSERT_TRUE(scheduler_.Add(Rest(2)).ok());
  EXPECT_EQ(scheduler_.stats().num_running, 1);
  EXPECT_EQ(scheduler_.stats().num_waiting, 1);
}

TEST_F(Left, GoesWithItsNodeAndWhatIsInIt) {
  scheduler_.AddNode({NodeId{2}, 100});
  scheduler_.AddLeft(kHandle, NodeId{1}, {3, 4, 5, 6, 7, 20, 21});
  const KvHandle other{SequenceId{41}, 9};
  scheduler_.AddLeft(other, NodeId{2}, {1, 2});
  scheduler_.LoseNode(NodeId{1});
  EXPECT_TRUE(scheduler_.has_left());
  scheduler_.DropKv(NodeId{2});
  EXPECT_FALSE(scheduler_.has_left());
  EXPECT_EQ(num_used(), 0);
}

TEST_F(Left, IsDroppedWhenItIsTimeOrWhenARunningSequenceNeedsTheRoom) {
  std::vector<TokenSlot> most(90);
  for (TokenSlot i = 0; i < 90; ++i) most[i] = i;
  scheduler_.AddLeft(kHandle, NodeId{1}, most);
  scheduler_.DropLeft();
  EXPECT_EQ(num_used(), 0);
  scheduler_.AddLeft(kHandle, NodeId{1}, {3, 4, 5, 6, 7, 20, 21});
  scheduler_.AddLeft({SequenceId{41}, 9}, NodeId{1}, {most.begin() + 22, most.end()});
  scheduler_.AddLeft({SequenceId{42}, 9}, NodeId{1}, {90, 91, 92, 93, 94, 95, 96, 97, 98, 99});
  scheduler_.AddLeft({SequenceId{43}, 9}, NodeId{1},
                     {0, 1, 2, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19});
  ASSERT_TRUE(scheduler_.Add(Rest(1)).ok());
  EXPECT_EQ(num_used(), 100);
  EXPECT_EQ(scheduler_.NextStep().work.size(), 1u);
  EXPECT_FALSE(scheduler_.has_left());
  EXPECT_EQ(scheduler_.stats().num_preemptions, 0);
}

// Two sequences share the slots of their prompt, of which the tree of prefixes has not heard yet.
// What the one leaves in the cache when it ends gives way to the first step of the other.
TEST(LeftAndShared, WhatOneOfThemCachesIsEvictedForTheOther) {
  SchedulerOptions options = kOptions;
  options.prefix_caching = true;
  options.num_batches = 2;
  Scheduler scheduler(options, MakeFifoQueue(), MakeLeastLoadedPlacement());
  scheduler.AddNode({NodeId{1}, 10});
  const auto add = [&](uint64_t id, int64_t max_new_tokens) {
    SequenceSpec spec{SequenceId{id}, MakePrompt(SequenceId{9}, 5), max_new_tokens};
    for (const TokenId token : {1, 2, 3})
      spec.generated.push_back(token + 10 * static_cast<TokenId>(id));
    spec.left = {SequenceId{id}, 9};
    ASSERT_TRUE(scheduler.Add(spec).ok());
  };
  const auto step = [&](int batch) {
    std::vector<Scheduler::Sampled> sampled;
    for (const Work& work : scheduler.NextStep(batch).work) sampled.push_back({work.sequence, 77});
    scheduler.CompleteStep(sampled, batch);
    return sampled.size();
  };
  scheduler.AddLeft({SequenceId{1}, 9}, NodeId{1}, {0, 1, 2, 3, 4, 5, 6});
  scheduler.AddLeft({SequenceId{2}, 9}, NodeId{1}, {0, 1, 2, 3, 4, 7, 8});
  add(1, 4);
  add(2, 5);
  EXPECT_EQ(step(0), 1u);  // the last one of sequence 1, for which it has taken the last slot
  scheduler.Finish(SequenceId{1});
  EXPECT_EQ(scheduler.stats().nodes[0].cached_tokens, 3);
  EXPECT_EQ(step(1), 1u);
  EXPECT_EQ(step(1), 1u);
  EXPECT_EQ(scheduler.Tokens(SequenceId{2}).size(), 10u);
  EXPECT_EQ(scheduler.stats().num_preemptions, 0);
}

TEST_F(Left, WhatCannotBeIsIgnored) {
  scheduler_.AddLeft(kHandle, NodeId{2}, {1, 2});
  scheduler_.AddLeft(kHandle, NodeId{1}, {99, 100});
  scheduler_.AddLeft(kHandle, NodeId{1}, {});
  EXPECT_FALSE(scheduler_.has_left());
  EXPECT_EQ(num_used(), 0);
}

}  // namespace scheduler_preemption_test
}  // namespace lamina
