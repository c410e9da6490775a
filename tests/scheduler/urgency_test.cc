// Priorities, objectives, and what becomes of sequences that cannot be in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/slo.h"
#include "scheduler/scheduler.h"
#include "tests/support/fake_cluster.h"

namespace lamina {
namespace urgency_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Slo, ARuleGrowsWithThePromptWithinItsLimits) {
  SloRule rule;
  EXPECT_FALSE(rule.Of(1000).any());
  rule = {milliseconds(500), milliseconds(2), std::chrono::seconds(8), milliseconds(250)};
  EXPECT_EQ(rule.Of(10), (Slo{milliseconds(500), milliseconds(250)}));
  EXPECT_EQ(rule.Of(1000).ttft, milliseconds(2000));
  EXPECT_EQ(rule.Of(100000).ttft, milliseconds(8000));
}

TEST(Slo, ATokenIsDueByTheNumberOfThoseBeforeIt) {
  const TimePoint start(milliseconds(1000));
  const Slo slo{milliseconds(200), milliseconds(50)};
  EXPECT_EQ(NextTokenDue(start, slo, 0), start + milliseconds(200));
  EXPECT_EQ(NextTokenDue(start, slo, 3), start + milliseconds(350));
  EXPECT_EQ(NextTokenDue(start, {{}, milliseconds(50)}, 3), TimePoint::max());
}

TEST(Slo, OutcomesNameWhatWasMissed) {
  const Slo slo{milliseconds(200), milliseconds(50)};
  const auto outcome = [](const Slo& of, int ttft_ms, int decode_ms, int64_t num_tokens) {
    return OutcomeOf(of, milliseconds(ttft_ms), milliseconds(decode_ms), num_tokens);
  };
  EXPECT_EQ(outcome(slo, 200, 500, 11), SloOutcome::kMet);
  EXPECT_EQ(outcome(slo, 201, 500, 11), SloOutcome::kMissedTtft);
  EXPECT_EQ(outcome(slo, 200, 501, 11), SloOutcome::kMissedTpot);
  EXPECT_EQ(outcome(slo, 201, 501, 11), SloOutcome::kMissedBoth);
  EXPECT_EQ(outcome(slo, 200, 0, 1), SloOutcome::kMet) << "one token has no time per token";
  EXPECT_EQ(outcome({milliseconds(200), {}}, 200, 9999, 2), SloOutcome::kMet);
  EXPECT_EQ(outcome({{}, milliseconds(50)}, 9999, 50, 2), SloOutcome::kMet);
}

constexpr SchedulerOptions kOptions{
    .max_num_seqs = 2, .max_num_batched_tokens = 64, .max_model_len = 500, .max_queued = 100};

FakeCluster::Urgency Of(int priority) { return {priority, {}, {}}; }
FakeCluster::Urgency DueAfter(int ttft_ms, int tpot_ms = 0) {
  return {0, {}, {milliseconds(ttft_ms), milliseconds(tpot_ms)}};
}

TEST(Urgency, TheMoreUrgentStartFirst) {
  FakeCluster cluster(kOptions, {{NodeId{0}, 400}}, MakePriorityQueue());
  for (const auto& [id, priority] : std::vector<std::pair<uint64_t, int>>{{1, 5}, {2, 0}, {3, -1}})
    ASSERT_TRUE(cluster.Add(id, 10, 20, Of(priority)).ok());
  cluster.RunUntilIdle();
  EXPECT_THAT(cluster.nodes().first_starts(),
              ElementsAre(SequenceId{3}, SequenceId{2}, SequenceId{1}));
}

// The node has room for one of them only. The less urgent one has come first.
TEST(Urgency, TheLessUrgentGivesWayWhenSlotsRunShort) {
  FakeCluster cluster(kOptions, {{NodeId{0}, 100}}, MakePriorityQueue());
  cluster.nodes().OrderBy(FakeKvNodes::Priority);
  ASSERT_TRUE(cluster.Add(1, 10, 80, Of(1)).ok());
  ASSERT_TRUE(cluster.Add(2, 10, 80, Of(0)).ok());
  while (cluster.scheduler().stats().num_preemptions == 0) cluster.Step();
  EXPECT_FALSE(cluster.nodes().holds(SequenceId{1}));
  EXPECT_TRUE(cluster.nodes().holds(SequenceId{2}));
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 2u);
}

TEST(Urgency, WhoIsAheadOfItsObjectiveGivesWay) {
  for (const bool first_is_ahead : {false, true}) {
    FakeCluster cluster(kOptions, {{NodeId{0}, 100}}, MakeDeadlineQueue());
    cluster.nodes().OrderBy(FakeKvNodes::Due);
    const auto ahead = DueAfter(1000, 100), behind = DueAfter(1000, 1);
    ASSERT_TRUE(cluster.Add(1, 10, 80, first_is_ahead ? ahead : behind).ok());
    ASSERT_TRUE(cluster.Add(2, 10, 80, first_is_ahead ? behind : ahead).ok());
    while (cluster.scheduler().stats().num_preemptions == 0) cluster.Step();
    EXPECT_EQ(cluster.nodes().holds(SequenceId{1}), !first_is_ahead);
    EXPECT_EQ(cluster.nodes().holds(SequenceId{2}), first_is_ahead);
    cluster.RunUntilIdle();
    EXPECT_EQ(cluster.results().size(), 2u);
  }
}

TEST(Urgency, OnlyThoseThatWaitWithoutATokenAreHopeless) {
  FakeCluster cluster(kOptions, {{NodeId{0}, 400}});
  Scheduler& scheduler = cluster.scheduler();
  EXPECT_EQ(scheduler.next_hopeless(), TimePoint::max());
  ASSERT_TRUE(cluster.Add(1, 10, 40, DueAfter(10)).ok());
  ASSERT_TRUE(cluster.Add(2, 10, 40, DueAfter(20)).ok());
  cluster.Step();  // both start
  ASSERT_TRUE(cluster.Add(3, 10, 5, DueAfter(40)).ok());
  ASSERT_TRUE(cluster.Add(4, 10, 5, DueAfter(30)).ok());
  ASSERT_TRUE(cluster.Add(5, 10, 5, DueAfter(0)).ok());
  ASSERT_TRUE(cluster.Add(6, 10, 5, DueAfter(35)).ok());
  EXPECT_EQ(scheduler.next_hopeless(), TimePoint(milliseconds(10)));
  EXPECT_THAT(scheduler.TakeHopeless(TimePoint(milliseconds(29))), IsEmpty());
  cluster.Finish(6);
  EXPECT_EQ(scheduler.next_hopeless(), TimePoint(milliseconds(30)));
  EXPECT_THAT(scheduler.TakeHopeless(TimePoint(milliseconds(40))),
              ElementsAre(SequenceId{4}, SequenceId{3}));
  EXPECT_THAT(scheduler.TakeHopeless(TimePoint::max()), IsEmpty()) << "each is told once";
  EXPECT_EQ(scheduler.next_hopeless(), TimePoint::max());
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 5u);
}

TEST(Urgency, TheHopelessAreServedBehindThoseThatCanBeInTime) {
  FakeCluster cluster(
      {.max_num_seqs = 1, .max_num_batched_tokens = 64, .max_model_len = 500, .max_queued = 100},
      {{NodeId{0}, 400}}, MakeDeadlineQueue());
  ASSERT_TRUE(cluster.Add(1, 10, 5, DueAfter(5)).ok());
  ASSERT_TRUE(cluster.Add(2, 10, 5, DueAfter(10)).ok());
  ASSERT_TRUE(cluster.Add(3, 10, 5, DueAfter(100)).ok());
  cluster.Step();
  for (const SequenceId id : cluster.scheduler().TakeHopeless(TimePoint(milliseconds(50))))
    cluster.scheduler().PutLast(id);
  cluster.RunUntilIdle();
  EXPECT_THAT(cluster.nodes().first_starts(),
              ElementsAre(SequenceId{1}, SequenceId{3}, SequenceId{2}));
}

TEST(Urgency, WhatIsParkedCanBeHopelessToo) {
  FakeCluster cluster(kOptions, {}, MakeDeadlineQueue());
  ASSERT_TRUE(cluster.Add(1, 10, 5, DueAfter(10)).ok());
  ASSERT_TRUE(cluster.scheduler().IsParked(SequenceId{1}));
  EXPECT_THAT(cluster.scheduler().TakeHopeless(TimePoint(milliseconds(10))),
              ElementsAre(SequenceId{1}));
  cluster.scheduler().PutLast(SequenceId{1});
  EXPECT_TRUE(cluster.scheduler().IsParked(SequenceId{1}));
  cluster.AddNode({NodeId{0}, 400});
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.results().size(), 1u);
}

}  // namespace urgency_test
}  // namespace lamina
