#include "scheduler/batch_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr TimePoint kNow{seconds(100)};
constexpr SequenceId kFirst{1}, kSecond{2};

// Two batches of one sequence each.
class BatchStepsTest : public ::testing::Test {
 protected:
  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.num_batches = 2;
    options.max_num_seqs = 2;
    options.max_model_len = 100;
    return options;
  }
  static StepCycleOptions Cycle() {
    StepCycleOptions options;
    options.pipeline = {2, false};
    options.max_batches = options.num_compute = 2;
    return options;
  }

  BatchStepsTest() {
    steps_.scheduler().AddNode({NodeId{1}, 1000});
    for (const SequenceId sequence : {kFirst, kSecond})
      EXPECT_TRUE(steps_.scheduler().Add({sequence, {1, 2, 3}, 5}).ok());
  }

  // The batches that get a step.
  std::vector<int> Plan(TimePoint now) {
    std::vector<int> batches;
    steps_.PlanSteps(now, [&](const StepPlan& plan) {
      EXPECT_TRUE(steps_.in_flight()[static_cast<size_t>(plan.batch)].has_value());
      batches.push_back(plan.batch);
    });
    return batches;
  }
  // Every row that samples gets a token.
  void Complete(size_t batch, TimePoint now) {
    std::vector<Scheduler::Sampled> sampled;
    for (const Work& work : steps_.in_flight()[batch]->plan.work) {
      if (work.sample) sampled.push_back({work.sequence, 7});
    }
    EXPECT_EQ(steps_.Complete(batch, now, sampled, StepCost{}).pipeline, std::nullopt)
        << "this pipeline is not chosen by what steps cost";
  }

  BatchSteps steps_{Options(), Cycle(), MakeFifoQueue(), MakeLeastLoadedPlacement()};
};

TEST_F(BatchStepsTest, ABatchHasOneStepInFlight) {
  const std::vector<int> both = Plan(kNow);
  EXPECT_EQ(both.size(), 2u);
  EXPECT_TRUE(Plan(kNow).empty());
  Complete(1, kNow + seconds(1));
  EXPECT_FALSE(steps_.in_flight()[1].has_value());
  EXPECT_THAT(Plan(kNow + seconds(1)), ElementsAre(1));
  EXPECT_EQ(steps_.in_flight()[0]->submitted, kNow);
  EXPECT_EQ(steps_.in_flight()[1]->submitted, kNow + seconds(1));
}

// The one that decodes has its token in flight computed again, the other its prompt.
TEST_F(BatchStepsTest, WhatIsNotPrefilledStartsAgain) {
  Plan(kNow);
  Complete(0, kNow);
  Plan(kNow);
  steps_.Abandon();
  for (const auto& step : steps_.in_flight()) EXPECT_FALSE(step.has_value());
  EXPECT_EQ(steps_.scheduler().stats().num_waiting, 1);
  EXPECT_EQ(Plan(kNow).size(), 2u);
  size_t num_tokens = 0;
  for (const auto& step : steps_.in_flight()) {
    for (const Work& work : step->plan.work) {
      EXPECT_TRUE(work.first);
      num_tokens += work.tokens.size();
    }
  }
  EXPECT_EQ(num_tokens, 1u + 3u);
}

TEST_F(BatchStepsTest, APauseIsAddedToTheTimesOfSteps) {
  Plan(kNow);
  steps_.Delay(seconds(4));
  for (const auto& step : steps_.in_flight()) EXPECT_EQ(step->submitted, kNow + seconds(4));
}

TEST_F(BatchStepsTest, WithANodeLessThereIsABatchLess) {
  Plan(kNow);
  steps_.Abandon();
  steps_.LeaveNodes(1);
  EXPECT_EQ(steps_.pipeline().num_batches, 1);
  EXPECT_THAT(Plan(kNow), ElementsAre(0));
  EXPECT_EQ(steps_.in_flight()[0]->plan.work.size(), 2u) << "both are in the one that is left";
}

}  // namespace
}  // namespace lamina
