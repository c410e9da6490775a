#include "scheduler/step_cycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

StepCycleOptions Choosing(int max_batches, int num_compute) {
  StepCycleOptions options;
  options.pipeline = {num_compute, false};
  options.chooses = true;
  options.max_batches = max_batches;
  options.num_compute = num_compute;
  return options;
}

TEST(StepCycle, BatchesTakeTurnsAndEachIsAskedTwice) {
  StepCycle cycle(Choosing(3, 1));
  std::vector<bool> in_flight(3);
  std::vector<size_t> asked;
  const auto plan = [&](bool sends) {
    asked.clear();
    cycle.PlanSteps([&](size_t batch) { return in_flight[batch]; },
                    [&](size_t batch) {
                      asked.push_back(batch);
                      in_flight[batch] = sends;
                      return sends;
                    });
    return asked;
  };
  EXPECT_THAT(plan(false), ElementsAre(1, 2, 0, 1, 2, 0))
      << "a batch may have been given sequences meanwhile";
  EXPECT_THAT(plan(true), ElementsAre(1, 2, 0));
  in_flight[1] = in_flight[2] = false;
  EXPECT_THAT(plan(true), ElementsAre(1, 2)) << "behind batch 0, which was planned last";
  in_flight[1] = in_flight[0] = false;
  EXPECT_THAT(plan(true), ElementsAre(0, 1));
}

TEST(StepCycle, TakesAPipelineThatPromisesMoreButLooksAtDecodeStepsOnly) {
  StepCycle cycle(Choosing(4, 1));
  StepCost cost;
  cost.rows = 100;
  cost.slices = cost.attention = 0.01;  // so two batches would keep both kinds of nodes busy
  cost.wires = 0;
  TimePoint now{milliseconds(1)};
  const auto result = [&](bool prefills) {
    now += milliseconds(20);
    return cycle.TakeResult(0, now, prefills, 100, cost);
  };
  for (int i = 0; i < 50; ++i) ASSERT_EQ(result(/*prefills=*/true), std::nullopt);
  std::optional<Pipeline> next;
  for (int i = 0; i < 50 && !next; ++i) next = result(false);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->num_batches, 2);
  EXPECT_EQ(cycle.pipeline(), *next);
}

// With stages all nodes share the work of all batches, and there is nothing that could rotate.
TEST(StepCycle, StagesStayStagesWhenNodesAreLost) {
  StepCycleOptions options = Choosing(4, 3);
  options.stages = true;
  StepCycle cycle(options);
  ASSERT_EQ(cycle.LeaveNodes(2), (Pipeline{2, false}));
  StepCost cost;
  cost.rows = 100;
  cost.slices = 0.01;  // with three batches two nodes would be better used only if they rotated
  cost.attention = 0.001;
  cost.wires = 0;
  TimePoint now{milliseconds(1)};
  for (int i = 0; i < 100; ++i) {
    now += milliseconds(40);
    if (const std::optional<Pipeline> next = cycle.TakeResult(0, now, false, 100, cost)) {
      EXPECT_FALSE(next->rotates) << next->num_batches;
    }
  }
}

TEST(StepCycle, StaysWithWhatItWasToldAndGivesUpABatchForEachLostNode) {
  StepCycleOptions options;
  options.pipeline = {4, true};
  options.max_batches = 4;
  options.num_compute = 3;
  StepCycle cycle(options);
  for (int i = 1; i < 50; ++i)
    EXPECT_EQ(cycle.TakeResult(0, TimePoint(milliseconds(i)), false, 100, StepCost{}),
              std::nullopt);
  EXPECT_EQ(cycle.LeaveNodes(2), (Pipeline{3, true}));
  EXPECT_EQ(cycle.LeaveNodes(1), (Pipeline{2, false})) << "nobody is left to rotate with";
}

}  // namespace
}  // namespace lamina
