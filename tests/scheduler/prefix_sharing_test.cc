// Groups, whose first member computes what the others share, and sequences that fail, whose KV
// nobody else gets. (FakeCluster gives ids that are alike modulo 4 the same text.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "scheduler/scheduler.h"
#include "tests/support/fake_cluster.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

SchedulerOptions Options(int max_num_seqs, int max_num_batched_tokens) {
  SchedulerOptions options;
  options.max_num_seqs = max_num_seqs;
  options.max_num_batched_tokens = max_num_batched_tokens;
  options.max_model_len = 1000;
  options.prefix_caching = true;
  return options;
}

int StepsUntilIdle(FakeCluster& cluster) {
  int num_steps = 0;
  while (!cluster.Step().work.empty()) ++num_steps;
  cluster.RunUntilIdle();
  return num_steps;
}

// `num` sequences of the same 40 tokens, which generate 16 each.
int StepsOf(int num, uint64_t group, int64_t prompt_tokens = 40, bool spread = false) {
  FakeCluster cluster(Options(128, 512), {KvNode{NodeId{0}, 20000}, KvNode{NodeId{1}, 20000}},
                      MakeFifoQueue(),
                      spread ? MakeSpreadPlacement(8) : MakeLeastLoadedPlacement());
  for (int i = 1; i <= num; ++i)
    EXPECT_TRUE(cluster.Add(static_cast<uint64_t>(4 * i), prompt_tokens, 16, group).ok());
  const int num_steps = StepsUntilIdle(cluster);
  EXPECT_THAT(cluster.results(), SizeIs(num));
  return num_steps;
}

TEST(Group, AllThatFitStartOnceTheFirstHasProvenTheBeginning) {
  const int one = StepsOf(1, 7);
  EXPECT_EQ(one, 16);
  EXPECT_EQ(StepsOf(128, 7), one + 2) << "two steps of the first, then those of all others at once";
  EXPECT_LE(StepsOf(128, 7), StepsOf(128, 0)) << "fewer than those that share nothing";
}

TEST(Group, WhatCannotBeSharedIsNotWaitedFor) {
  EXPECT_EQ(StepsOf(100, 7, /*prompt_tokens=*/1), StepsOf(100, 0, 1))
      << "a token that samples is computed";
  EXPECT_EQ(StepsOf(100, 7, 40, /*spread=*/true), StepsOf(100, 0, 40, true))
      << "what lies on several nodes is not kept";
}

TEST(Group, ThoseWhoWaitDoNotHoldUpWhoIsBehind) {
  FakeCluster cluster(Options(8, 32), {KvNode{NodeId{0}, 1000}});
  for (const uint64_t id : {4, 8, 12}) ASSERT_TRUE(cluster.Add(id, 80, 10, /*group=*/1).ok());
  ASSERT_TRUE(cluster.Add(13, 10, 10).ok());
  ASSERT_TRUE(cluster.Add(14, 10, 10).ok());
  cluster.Step();
  cluster.Step();
  EXPECT_THAT(cluster.nodes().first_starts(), ElementsAre(SequenceId{4}))
      << "80 tokens, 32 at a time";
  cluster.Step();
  EXPECT_THAT(cluster.nodes().first_starts(),
              ElementsAre(SequenceId{4}, SequenceId{13}, SequenceId{14}))
      << "with what it leaves";
  cluster.Step();
  cluster.Step();
  EXPECT_THAT(cluster.nodes().first_starts(), SizeIs(5));
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.nodes().num_shared(), 2);
}

// Newcomers that would take every place are behind the group as soon as it need not wait.
TEST(Group, IsNotOvertakenForEver) {
  FakeCluster cluster(Options(3, 64), {KvNode{NodeId{0}, 1000}});
  ASSERT_TRUE(cluster.Add(4, 20, 50, /*group=*/1).ok());
  ASSERT_TRUE(cluster.Add(8, 20, 50, /*group=*/1).ok());
  uint64_t next = 9;
  for (int i = 0; i < 12; ++i) {
    for (int k = 0; k < 2; ++k, next += 1 + (next % 4 == 3))
      ASSERT_TRUE(cluster.Add(next, 4, 2).ok());
    cluster.Step();
  }
  const std::vector<SequenceId>& starts = cluster.nodes().first_starts();
  const auto place = std::ranges::find(starts, SequenceId{8}) - starts.begin();
  EXPECT_LE(place, 4);
  cluster.RunUntilIdle();
}

TEST(Group, TheNextOneComputesTheBeginningWhenTheFirstIsGone) {
  FakeCluster cluster(Options(8, 64), {KvNode{NodeId{0}, 1000}});
  for (const uint64_t id : {4, 8, 12}) ASSERT_TRUE(cluster.Add(id, 20, 10, /*group=*/1).ok());
  cluster.Step();
  cluster.Finish(4);
  const StepPlan plan = cluster.Step();
  ASSERT_THAT(plan.work, SizeIs(1));
  EXPECT_EQ(plan.work[0].sequence, SequenceId{8});
  EXPECT_EQ(plan.work[0].first_position, 0);
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.nodes().num_shared(), 1);
}

// How many of its 40 prompt tokens a new sequence finds.
int64_t NumFound(FakeCluster& cluster, uint64_t id) {
  EXPECT_TRUE(cluster.Add(id, 40, 5).ok());
  const StepPlan plan = cluster.Step();
  const auto work = std::ranges::find(plan.work, SequenceId{id}, &Work::sequence);
  return work == plan.work.end() ? -1 : work->first_position;
}

TEST(FailedSequence, LeavesNothingForOthers) {
  FakeCluster cluster(Options(8, 64), {KvNode{NodeId{0}, 1000}});
  ASSERT_TRUE(cluster.Add(4, 40, 20).ok());
  for (int i = 0; i < 5; ++i) cluster.Step();
  cluster.Fail(4);
  EXPECT_EQ(NumFound(cluster, 8), 0);
  cluster.RunUntilIdle();
  EXPECT_EQ(NumFound(cluster, 12), 39) << "what another computed since is good";
  cluster.RunUntilIdle();
}

// Who knows where it went wrong: what it found there is suspected too. The sequence that it came
// from goes on, and leaves nothing either.
TEST(FailedSequence, TakesWhatItSharedOutOfUse) {
  FakeCluster cluster(Options(8, 64), {KvNode{NodeId{0}, 1000}});
  ASSERT_TRUE(cluster.Add(4, 40, 30).ok());
  for (int i = 0; i < 3; ++i) cluster.Step();
  EXPECT_EQ(NumFound(cluster, 8), 39);
  cluster.Fail(8);
  EXPECT_EQ(NumFound(cluster, 12), 0);
  cluster.Finish(12);
  cluster.RunUntilIdle();
  EXPECT_THAT(cluster.results(), ElementsAre(::testing::Key(SequenceId{4})));
  EXPECT_EQ(NumFound(cluster, 16), 0);
  cluster.RunUntilIdle();
}

TEST(FailedSequence, DoesNotTouchWhatOthersComputedThemselves) {
  FakeCluster cluster(Options(8, 128), {KvNode{NodeId{0}, 1000}});
  ASSERT_TRUE(cluster.Add(4, 40, 20).ok());
  ASSERT_TRUE(cluster.Add(8, 40, 20).ok());  // at the same time: each computes all of it
  for (int i = 0; i < 4; ++i) cluster.Step();
  cluster.Fail(8);
  EXPECT_EQ(NumFound(cluster, 12), 39) << "the first one's";
  cluster.RunUntilIdle();
}

TEST(FailedSequence, UnknownAndWaitingOnesAreForgotten) {
  FakeCluster cluster(Options(1, 64), {KvNode{NodeId{0}, 1000}});
  ASSERT_TRUE(cluster.Add(4, 40, 5).ok());
  ASSERT_TRUE(cluster.Add(8, 40, 5).ok());
  cluster.Step();
  cluster.Fail(8);
  cluster.scheduler().Fail(SequenceId{99});
  cluster.RunUntilIdle();
  EXPECT_THAT(cluster.results(), SizeIs(1));
  EXPECT_EQ(cluster.scheduler().stats().num_waiting, 0);
  EXPECT_THAT(cluster.scheduler().Tokens(SequenceId{8}), IsEmpty());
}

// Of each of its prompt's tokens something is asked.
TEST(ComputesPrompt, TakesNothingFromOthersAndLeavesThemWhatItHas) {
  Scheduler scheduler(Options(8, 64), MakeFifoQueue(), MakeLeastLoadedPlacement());
  scheduler.AddNode({NodeId{1}, 1000});
  uint64_t last = 0;
  // Where the first work of a sequence of 40 tokens begins.
  const auto begins = [&](bool computes_prompt, uint64_t group = 0) {
    const SequenceId id{++last};
    EXPECT_TRUE(scheduler
                    .Add({.id = id,
                          .prompt = std::vector<TokenId>(40, 7),
                          .max_new_tokens = 4,
                          .group = group,
                          .computes_prompt = computes_prompt})
                    .ok());
    std::optional<int64_t> begin;
    for (StepPlan plan = scheduler.NextStep(); !plan.work.empty(); plan = scheduler.NextStep()) {
      if (!begin) begin = plan.work.at(0).first_position;
      std::vector<Scheduler::Sampled> sampled;
      for (const Work& work : plan.work) {
        if (work.sample) sampled.push_back({work.sequence, 9});
      }
      scheduler.CompleteStep(sampled);
    }
    scheduler.Finish(id);
    return begin;
  };
  EXPECT_EQ(begins(true), 0);
  EXPECT_EQ(begins(false), 39) << "it finds what the other one has computed";
  EXPECT_EQ(begins(true), 0);
  EXPECT_EQ(begins(true, /*group=*/5), 0);
  EXPECT_EQ(begins(false), 39);
}

}  // namespace
}  // namespace lamina
