#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/fake_cluster.h"

namespace lamina {
namespace scheduler_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr KvNode kNode{NodeId{0}, 1000};

SchedulerOptions Options(int max_num_seqs = 4, int max_num_batched_tokens = 8) {
  return {.max_num_seqs = max_num_seqs,
          .max_num_batched_tokens = max_num_batched_tokens,
          .max_model_len = 500,
          .max_queued = 10};
}

// One line per Work, "d3@5" or "p3@0+8": decode or prefill, sequence, first position, tokens of a
// prefill, and "!" if a prefill samples.
std::vector<std::string> Shape(const StepPlan& plan) {
  std::vector<std::string> shape;
  for (const Work& work : plan.work) {
    std::ostringstream line;
    line << (work.prefill ? 'p' : 'd') << work.sequence << '@' << work.first_position;
    if (work.prefill) line << '+' << work.tokens.size() << (work.sample ? "!" : "");
    shape.push_back(line.str());
  }
  return shape;
}

TEST(Scheduler, NothingToDoIsAnEmptyPlanThatNeedsNoCompletion) {
  Scheduler scheduler(Options(), MakeFifoQueue(), MakeLeastLoadedPlacement());
  EXPECT_TRUE(scheduler.NextStep().empty());
  scheduler.AddNode(kNode);
  EXPECT_TRUE(scheduler.NextStep().empty());
  scheduler.CompleteStep({});
  EXPECT_TRUE(scheduler.NextStep().empty());
}

TEST(SchedulerDeathTest, StepsDoNotOverlap) {
  FakeCluster cluster(Options(), {kNode});
  ASSERT_TRUE(cluster.Add(1, 3, 3).ok());
  cluster.Plan();
  EXPECT_DEATH(cluster.scheduler().NextStep(), "not completed");
  EXPECT_DEATH(cluster.scheduler().AddNode(kNode), "node 0 is there already");
}

TEST(Scheduler, PrefillsInChunksThenDecodes) {
  FakeCluster cluster(Options(), {kNode});
  ASSERT_TRUE(cluster.Add(1, 20, 3).ok());
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("p1@0+8"));
  EXPECT_EQ(cluster.scheduler().stats().nodes[0].used_tokens, 20)
      << "a prefill's slots are taken at its start";
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("p1@8+8"));
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("p1@16+4!"));
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("d1@20"));
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("d1@21"));
  EXPECT_EQ(cluster.results().at(SequenceId{1}), GenerateAlone(MakePrompt(SequenceId{1}, 20), 3));
  const StepPlan last = cluster.Step();
  EXPECT_THAT(last.released, ElementsAre(SequenceId{1}));
  EXPECT_THAT(last.work, IsEmpty());
  EXPECT_TRUE(cluster.Step().empty());
}

TEST(Scheduler, DecodeComesFirstAndPrefillGetsTheRest) {
  FakeCluster cluster(Options(), {kNode});
  ASSERT_TRUE(cluster.Add(1, 3, 50).ok());
  ASSERT_TRUE(cluster.Add(2, 2, 50).ok());
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("p1@0+3!", "p2@0+2!"));
  ASSERT_TRUE(cluster.Add(3, 13, 50).ok());
  ASSERT_TRUE(cluster.Add(4, 2, 50).ok());
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("d1@3", "d2@2", "p3@0+6"));
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("d1@4", "d2@3", "p3@6+6"));
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("d1@5", "d2@4", "p3@12+1!", "p4@0+2!"));
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("d1@6", "d2@5", "d3@13", "d4@2"));
  cluster.RunUntilIdle();
}

TEST(Scheduler, ANodeHasRoomForMoreAndThenForLessAgain) {
  Scheduler scheduler(Options(), MakeFifoQueue(), MakeLeastLoadedPlacement());
  scheduler.AddNode({NodeId{0}, 16, 64});
  const auto add = [&](uint64_t id) {
    return scheduler.Add({SequenceId{id}, std::vector<TokenId>(8, static_cast<TokenId>(id)), 8});
  };
  const auto step = [&] {
    const StepPlan plan = scheduler.NextStep();
    std::vector<Scheduler::Sampled> sampled;
    for (const Work& work : plan.work) {
      if (work.sample) sampled.push_back({work.sequence, 1});
      for (const KvPart& part : work.route) {
        for (const TokenSlot slot : part.slots)
          EXPECT_LT(slot, scheduler.stats().nodes[0].capacity_tokens);
      }
    }
    for (const size_t i : scheduler.CompleteStep(sampled)) {
      if (scheduler.Tokens(sampled[i].sequence).size() == 16) scheduler.Finish(sampled[i].sequence);
    }
  };
  ASSERT_TRUE(add(1).ok());
  ASSERT_TRUE(add(2).ok());
  ASSERT_TRUE(add(3).ok());
  EXPECT_FALSE(scheduler.Add({SequenceId{9}, std::vector<TokenId>(12, 1), 8}).ok())
      << "what is accepted is not more than finds room at first";
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(scheduler.stats().num_running, 1);
  scheduler.SetCapacity(NodeId{0}, 64);
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(scheduler.stats().num_running, 3);
  EXPECT_EQ(scheduler.stats().nodes[0].capacity_tokens, 64);
  scheduler.SetCapacity(NodeId{0}, 16);
  EXPECT_FALSE(scheduler.IsOverCapacity(NodeId{0}));
  EXPECT_LE(scheduler.stats().nodes[0].used_tokens, 16);
  EXPECT_EQ(scheduler.stats().nodes[0].capacity_tokens, 16);
  EXPECT_LT(scheduler.stats().num_running, 3);
  EXPECT_GT(scheduler.stats().num_waiting, 0) << "what found no room waits";
  for (int i = 0; i < 200 && scheduler.stats().num_running + scheduler.stats().num_waiting > 0; ++i)
    step();
  EXPECT_EQ(scheduler.stats().num_running, 0);
  EXPECT_EQ(scheduler.stats().num_waiting, 0);
  EXPECT_EQ(scheduler.stats().nodes[0].used_tokens, 0);
}

// With two steps in flight, slots that were taken away are used until theirs is completed.
TEST(Scheduler, SlotsThatAreTakenAwayAreUsedByStepsInFlight) {
  SchedulerOptions options = Options();
  options.num_batches = 2;
  options.max_num_batched_tokens = 64;
  Scheduler scheduler(options, MakeFifoQueue(), MakeLeastLoadedPlacement());
  scheduler.AddNode({NodeId{0}, 16, 64});
  scheduler.SetCapacity(NodeId{0}, 64);
  for (const uint64_t id : {1, 2, 3, 4}) {
    ASSERT_TRUE(
        scheduler.Add({SequenceId{id}, std::vector<TokenId>(10, static_cast<TokenId>(id)), 5})
            .ok());
  }
  const StepPlan first = scheduler.NextStep(0), second = scheduler.NextStep(1);
  ASSERT_FALSE(first.work.empty());
  ASSERT_FALSE(second.work.empty());
  scheduler.SetCapacity(NodeId{0}, 16);
  EXPECT_TRUE(scheduler.IsOverCapacity(NodeId{0}));
  scheduler.CompleteStep({}, 0);
  scheduler.CompleteStep({}, 1);
  EXPECT_FALSE(scheduler.IsOverCapacity(NodeId{0}));
}

TEST(Scheduler, RunningCountIncludesThePartlyPrefilledOne) {
  FakeCluster cluster(Options(/*max_num_seqs=*/2), {kNode});
  ASSERT_TRUE(cluster.Add(1, 2, 50).ok());
  ASSERT_TRUE(cluster.Add(2, 9, 50).ok());
  ASSERT_TRUE(cluster.Add(3, 1, 50).ok());
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("p1@0+2!", "p2@0+6"));
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("d1@2", "p2@6+3!"));
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("d1@3", "d2@9"));
  EXPECT_EQ(cluster.scheduler().stats().num_waiting, 1);
  cluster.Finish(1);
  EXPECT_THAT(Shape(cluster.Step()), ElementsAre("d2@10", "p3@0+1!"));
  cluster.RunUntilIdle();
}

TEST(Scheduler, MoreSequencesThanTokensPerStepStillAllRun) {
  FakeCluster cluster(Options(/*max_num_seqs=*/100, /*max_num_batched_tokens=*/3), {kNode});
  for (uint64_t id = 0; id < 8; ++id) ASSERT_TRUE(cluster.Add(id, 5, 7).ok());
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 8u);
}

TEST(Scheduler, AddRefusesWhatCanNeverRun) {
  Scheduler scheduler(Options(), MakeFifoQueue(), MakeLeastLoadedPlacement());
  const auto add = [&](uint64_t id, int64_t prompt_tokens, int64_t max_new_tokens) {
    return scheduler.Add(
        {SequenceId{id}, std::vector<TokenId>(static_cast<size_t>(prompt_tokens)), max_new_tokens});
  };
  scheduler.AddNode({NodeId{0}, 100});
  scheduler.AddNode({NodeId{1}, 30});
  EXPECT_EQ(add(1, 0, 3).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(add(1, 3, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(add(1, 3, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(add(1, 3, INT64_MAX).code(), StatusCode::kInvalidArgument);
  const Status too_long = add(1, 401, 100);
  EXPECT_EQ(too_long.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(too_long.message(), AllOf(HasSubstr("401"), HasSubstr("100"), HasSubstr("500")));
  const Status too_big = add(1, 71, 30);
  EXPECT_EQ(too_big.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(too_big.message(), AllOf(HasSubstr("71"), HasSubstr("30"), HasSubstr("100")));
  EXPECT_TRUE(add(1, 70, 30).ok());
  EXPECT_EQ(add(1, 3, 3).code(), StatusCode::kInvalidArgument) << "known already";
  EXPECT_EQ(scheduler.stats().num_waiting, 1);
}

TEST(Scheduler, AFullQueueAsksToTryAgain) {
  FakeCluster cluster(Options(), {kNode});
  for (uint64_t id = 0; id < 10; ++id) ASSERT_TRUE(cluster.Add(id, 4, 2).ok());
  const Status full = cluster.Add(10, 4, 2);
  EXPECT_EQ(full.code(), StatusCode::kTryAgain);
  EXPECT_THAT(full.message(), HasSubstr("10"));
  cluster.Step();
  EXPECT_TRUE(cluster.Add(10, 4, 2).ok());
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 11u);
}

TEST(Scheduler, FinishInFlightIsReportedOnceAndItsSlotsAreReusedThenOnly) {
  FakeCluster cluster(Options(), {KvNode{NodeId{0}, 10}});
  ASSERT_TRUE(cluster.Add(1, 6, 3).ok());
  const StepPlan first = cluster.Plan();
  ASSERT_TRUE(cluster.Add(2, 6, 3).ok());
  cluster.Finish(1);
  cluster.Finish(1);
  EXPECT_THAT(cluster.scheduler().Tokens(SequenceId{1}), IsEmpty());
  // The nodes sample it nevertheless; the scheduler does not know it any more.
  cluster.scheduler().CompleteStep(std::vector<Scheduler::Sampled>{{SequenceId{1}, 5}});
  cluster.nodes().Completed(0);
  const StepPlan second = cluster.Step();
  EXPECT_THAT(second.released, ElementsAre(SequenceId{1}));
  EXPECT_THAT(Shape(second), ElementsAre("p2@0+6!"));
  EXPECT_EQ(second.work[0].route[0].slots, first.work[0].route[0].slots);
  EXPECT_THAT(cluster.Step().released, IsEmpty());
  cluster.RunUntilIdle();
}

TEST(Batches, StartsKeepThemEvenAndSequencesStay) {
  SchedulerOptions options = Options();
  options.num_batches = 2;
  FakeCluster cluster(options, {KvNode{NodeId{0}, 100}});
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(cluster.Add(id, 4, 5).ok());
  EXPECT_THAT(Shape(cluster.Plan(0)), ElementsAre("p1@0+4!", "p2@0+4!"))
      << "its share at once; the rest belongs to the other batch";
  EXPECT_THAT(Shape(cluster.Plan(1)), ElementsAre("p3@0+4!"));
  cluster.Complete(0);
  ASSERT_TRUE(cluster.Add(4, 4, 5).ok());
  EXPECT_THAT(Shape(cluster.Plan(0)), ElementsAre("d1@4", "d2@4"));
  cluster.Complete(1);
  EXPECT_THAT(Shape(cluster.Plan(1)), ElementsAre("d3@4", "p4@0+4!"));
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 4u);
}

TEST(Batches, WhoIsInFlightIsNotPreemptedAndKeepsItsSlots) {
  SchedulerOptions options{.max_num_seqs = 4,
                           .num_batches = 2,
                           .max_num_batched_tokens = 64,
                           .max_model_len = 100,
                           .max_queued = 10};
  FakeCluster cluster(options, {KvNode{NodeId{0}, 64}});
  ASSERT_TRUE(cluster.Add(1, 4, 60).ok());
  cluster.Plan(0);
  ASSERT_TRUE(cluster.Add(2, 25, 30).ok());
  cluster.Plan(1);
  for (int i = 0; i < 17; ++i) {
    for (const int batch : {1, 0}) {
      cluster.Complete(batch);
      ASSERT_EQ(cluster.Plan(batch).work.size(), 1u);
    }
  }
  cluster.Complete(1);
  ASSERT_EQ(cluster.Plan(1).work.size(), 1u) << "takes the last slot";
  cluster.Complete(0);
  EXPECT_TRUE(cluster.Plan(0).empty()) << "the only one that could be preempted is in flight";
  cluster.Finish(2);
  EXPECT_TRUE(cluster.Plan(0).empty()) << "its KV is read still";
  cluster.Complete(1);
  const StepPlan next = cluster.Plan(0);
  EXPECT_THAT(next.released, ElementsAre(SequenceId{2}));
  EXPECT_EQ(next.work.size(), 1u);
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.nodes().num_preemptions(), 0);
}

TEST(Scheduler, ASequenceThatNeverHadSlotsIsNotReported) {
  FakeCluster cluster(Options(), {kNode});
  ASSERT_TRUE(cluster.Add(1, 3, 3).ok());
  cluster.Finish(1);
  EXPECT_TRUE(cluster.Step().empty());
  EXPECT_EQ(cluster.scheduler().stats().num_waiting, 0);
}

TEST(Scheduler, ReleasedAloneIsAPlanWithAStepOfItsOwn) {
  FakeCluster cluster(Options(), {kNode});
  ASSERT_TRUE(cluster.Add(1, 3, 30).ok());
  EXPECT_EQ(cluster.Step().step, StepId{1});
  cluster.Finish(1);
  const StepPlan plan = cluster.Step();
  EXPECT_EQ(plan.step, StepId{2});
  EXPECT_THAT(plan.released, ElementsAre(SequenceId{1}));
  EXPECT_THAT(plan.work, IsEmpty());
  EXPECT_TRUE(cluster.scheduler().NextStep().empty()) << "needs no completion";
  ASSERT_TRUE(cluster.Add(2, 3, 30).ok());
  EXPECT_EQ(cluster.Step().step, StepId{3});
}

TEST(Scheduler, AbortOfThePartlyPrefilledOneMakesRoomForTheNext) {
  FakeCluster cluster(Options(), {kNode});
  ASSERT_TRUE(cluster.Add(1, 20, 3).ok());
  ASSERT_TRUE(cluster.Add(2, 5, 3).ok());
  EXPECT_THAT(Shape(cluster.Plan()), ElementsAre("p1@0+8"));
  cluster.Finish(1);
  cluster.Complete();
  const StepPlan plan = cluster.Step();
  EXPECT_THAT(plan.released, ElementsAre(SequenceId{1}));
  EXPECT_THAT(Shape(plan), ElementsAre("p2@0+5!"));
  cluster.RunUntilIdle();
}

TEST(Scheduler, AtMaxNewTokensItGivesItsSlotsBackAndKeepsItsTokensUntilFinish) {
  Scheduler scheduler(Options(), MakeFifoQueue(), MakeLeastLoadedPlacement());
  scheduler.AddNode(kNode);
  ASSERT_TRUE(scheduler.Add({SequenceId{1}, {7, 8}, 2}).ok());
  scheduler.NextStep();
  scheduler.CompleteStep(std::vector<Scheduler::Sampled>{{SequenceId{1}, 9}});
  EXPECT_THAT(scheduler.Tokens(SequenceId{1}), ElementsAre(7, 8, 9));
  scheduler.NextStep();
  scheduler.CompleteStep(std::vector<Scheduler::Sampled>{{SequenceId{1}, 10}});
  const StepPlan plan = scheduler.NextStep();
  EXPECT_THAT(plan.released, ElementsAre(SequenceId{1}));
  EXPECT_THAT(plan.work, IsEmpty());
  EXPECT_THAT(scheduler.Tokens(SequenceId{1}), ElementsAre(7, 8, 9, 10));
  const LostSequences lost = scheduler.LoseNode(NodeId{0});
  EXPECT_TRUE(lost.again.empty() && lost.parked.empty()) << "it is complete";
  scheduler.Finish(SequenceId{1});
  EXPECT_THAT(scheduler.Tokens(SequenceId{1}), IsEmpty());
  EXPECT_TRUE(scheduler.NextStep().empty());
}

TEST(Scheduler, SamplesOfOthersAreIgnoredAndMissingOnesComputedAgain) {
  Scheduler scheduler(Options(), MakeFifoQueue(), MakeLeastLoadedPlacement());
  scheduler.AddNode(kNode);
  using Samples = std::vector<Scheduler::Sampled>;
  ASSERT_TRUE(scheduler.Add({SequenceId{1}, {1, 2, 3}, 9}).ok());
  ASSERT_TRUE(scheduler.Add({SequenceId{2}, std::vector<TokenId>(9), 9}).ok());
  const StepPlan first = scheduler.NextStep();
  ASSERT_THAT(Shape(first), ElementsAre("p1@0+3!", "p2@0+5"));
  scheduler.CompleteStep(Samples{{SequenceId{2}, 5}, {SequenceId{3}, 5}});
  const StepPlan second = scheduler.NextStep();
  ASSERT_THAT(Shape(second), ElementsAre("p1@0+3!", "p2@5+4!"));
  EXPECT_EQ(second.work[0].route[0].slots, first.work[0].route[0].slots);
  scheduler.CompleteStep(Samples{{SequenceId{1}, 4}, {SequenceId{1}, 5}, {SequenceId{2}, 6}});
  EXPECT_THAT(scheduler.Tokens(SequenceId{1}), ElementsAre(1, 2, 3, 4));
  const StepPlan third = scheduler.NextStep();
  ASSERT_THAT(Shape(third), ElementsAre("d1@3", "d2@9"));
  scheduler.CompleteStep(Samples{{SequenceId{2}, 7}});
  const StepPlan fourth = scheduler.NextStep();
  ASSERT_THAT(Shape(fourth), ElementsAre("d1@3", "d2@10"));
  EXPECT_EQ(fourth.work[0].route[0].slots, third.work[0].route[0].slots);
}

TEST(Scheduler, AnIdThatIsAddedAgainInFlightIsANewSequence) {
  Scheduler scheduler(Options(), MakeFifoQueue(), MakeLeastLoadedPlacement());
  scheduler.AddNode(kNode);
  ASSERT_TRUE(scheduler.Add({SequenceId{1}, {1, 2}, 9}).ok());
  scheduler.NextStep();
  scheduler.Finish(SequenceId{1});
  ASSERT_TRUE(scheduler.Add({SequenceId{1}, {3}, 9}).ok());
  scheduler.CompleteStep(std::vector<Scheduler::Sampled>{{SequenceId{1}, 5}});
  EXPECT_THAT(scheduler.Tokens(SequenceId{1}), ElementsAre(3));
  const StepPlan plan = scheduler.NextStep();
  EXPECT_THAT(plan.released, ElementsAre(SequenceId{1}));
  EXPECT_THAT(plan.work, IsEmpty()) << "nodes would take the one for the other";
  EXPECT_THAT(Shape(scheduler.NextStep()), ElementsAre("p1@0+1!"));
}

// Each token counts 10 bytes.
TEST(Scheduler, StartsNoMoreInOneStepThanNodesCanBeToldOf) {
  SchedulerOptions options = Options(8, 100);
  options.max_start_bytes = 100;
  Scheduler scheduler(options, MakeFifoQueue(), MakeLeastLoadedPlacement());
  scheduler.AddNode({NodeId{0}, 100});
  const auto add = [&](uint64_t id, size_t num_tokens, int64_t told_bytes) {
    ASSERT_TRUE(scheduler
                    .Add({.id = SequenceId{id},
                          .prompt = std::vector<TokenId>(num_tokens),
                          .max_new_tokens = 9,
                          .told_bytes = told_bytes})
                    .ok());
  };
  add(1, 3, 0);
  add(2, 4, 30);
  add(3, 1, 0);
  add(4, 1, 1000);
  add(5, 15, 0);
  const auto step = [&] {
    const StepPlan plan = scheduler.NextStep();
    std::vector<Scheduler::Sampled> sampled;
    for (const Work& work : plan.work) sampled.push_back({work.sequence, 1});
    scheduler.CompleteStep(sampled);
    return Shape(plan);
  };
  EXPECT_THAT(step(), ElementsAre("p1@0+3!", "p2@0+4!"));
  EXPECT_THAT(step(), ElementsAre("d1@3", "d2@4", "p3@0+1!"))
      << "the next one needs more than is left";
  EXPECT_THAT(step(), ElementsAre("d1@4", "d2@5", "d3@1", "p4@0+1!"))
      << "more than there is at all: it starts alone";
  EXPECT_THAT(step(), ElementsAre("d1@5", "d2@6", "d3@2", "d4@1", "p5@0+15!"));
}

TEST(Scheduler, SpreadsSequencesOverNodesAndCounts) {
  FakeCluster cluster(Options(4, 100), {KvNode{NodeId{3}, 100}, KvNode{NodeId{5}, 100}});
  ASSERT_TRUE(cluster.Add(1, 10, 5).ok());
  ASSERT_TRUE(cluster.Add(2, 12, 5).ok());
  ASSERT_TRUE(cluster.Add(3, 4, 5).ok());
  const StepPlan plan = cluster.Step();
  ASSERT_EQ(plan.work.size(), 3u);
  EXPECT_EQ(plan.work[0].route[0].node, NodeId{3});
  EXPECT_EQ(plan.work[1].route[0].node, NodeId{5});
  EXPECT_EQ(plan.work[2].route[0].node, NodeId{3});
  const SchedulerStats stats = cluster.scheduler().stats();
  EXPECT_EQ(stats.num_running, 3);
  EXPECT_EQ(stats.num_waiting, 0);
  ASSERT_EQ(stats.nodes.size(), 2u);
  EXPECT_EQ(stats.nodes[0].id, NodeId{3});
  EXPECT_EQ(stats.nodes[0].used_tokens, 14);
  EXPECT_EQ(stats.nodes[0].num_sequences, 2);
  EXPECT_EQ(stats.nodes[1].capacity_tokens, 100);
  EXPECT_EQ(stats.nodes[1].used_tokens, 12);
  cluster.RunUntilIdle();
}

}  // namespace scheduler_test
}  // namespace lamina
