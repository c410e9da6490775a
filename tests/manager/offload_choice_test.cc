// How much of the weights lies outside in a step, by what its sequences were promised.
#include "manager/offload_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TimePoint kNow{std::chrono::hours(1)};

// A decode step of r rows takes r ms, and 10 ms for each half, quarter, eighth that lies outside of
// 8: with interval 1 80 ms, 2 40, 4 20, 8 10. A prompt of n tokens takes n ms, or the same if that
// is longer.
std::shared_ptr<const StepProfile> Profile() {
  std::vector<StepTime> times;
  for (const int interval : {1, 2, 4, 8, 0}) {
    const double outside = interval == 0 ? 0 : 0.080 / interval;
    for (const double rows : {1, 100})
      times.push_back({false, interval, rows, 100, std::max(outside, 1e-3 * rows)});
    for (const double tokens : {1, 20, 40, 1000})
      times.push_back({true, interval, tokens, 0, std::max(outside, 1e-3 * tokens)});
  }
  return std::make_shared<const StepProfile>(*StepProfile::Of(times));
}

class OffloadChoiceTest : public ::testing::Test {
 protected:
  explicit OffloadChoiceTest(int num_batches = 1)
      : scheduler_(Options(num_batches), MakeFifoQueue(), MakeLeastLoadedPlacement()) {
    scheduler_.AddNode({NodeId{1}, 100000});
  }
  static SchedulerOptions Options(int num_batches) {
    SchedulerOptions options;
    options.num_batches = num_batches;
    options.max_model_len = 10000;
    return options;
  }
  void Add(int64_t prompt, Slo slo, TimePoint start = kNow) {
    SequenceSpec spec{SequenceId{++last_}, std::vector<TokenId>(static_cast<size_t>(prompt), 7),
                      50};
    spec.start = start;
    spec.slo = slo;
    ASSERT_TRUE(scheduler_.Add(spec).ok());
  }
  // The next step's interval.
  std::optional<int> Next() {
    plan_ = scheduler_.NextStep();
    return choice_.Choose(plan_, scheduler_, kNow);
  }
  void Complete() {
    std::vector<Scheduler::Sampled> sampled;
    for (const Work& work : plan_.work) {
      if (work.sample) sampled.push_back({work.sequence, 3});
    }
    scheduler_.CompleteStep(sampled);
  }

  Scheduler scheduler_;
  OffloadChoice choice_{Profile()};
  StepPlan plan_;
  uint64_t last_ = 0;
};

TEST_F(OffloadChoiceTest, WithoutObjectivesAllStaysInMemoryThatFindsRoom) {
  Add(4, {});
  EXPECT_EQ(Next(), 0);
  choice_.SetLargest(4);
  EXPECT_EQ(choice_.Choose(plan_, scheduler_, kNow), 4);
  choice_.SetLargest(5);
  EXPECT_EQ(choice_.Choose(plan_, scheduler_, kNow), 4);
}

TEST_F(OffloadChoiceTest, AsMuchLiesOutsideAsTheMostDemandingObjectiveAllows) {
  Add(4, {{}, milliseconds(85)});
  EXPECT_EQ(Next(), 1) << "80 ms";
  Complete();
  Add(4, {{}, milliseconds(45)});
  EXPECT_EQ(Next(), 2) << "40 ms, from the step on that computes its prompt";
  Complete();
  EXPECT_EQ(Next(), 2);
  Complete();
  Add(4, {{}, milliseconds(19)});
  EXPECT_EQ(Next(), 8);
  Complete();
  scheduler_.Finish(SequenceId{3});
  EXPECT_EQ(Next(), 2) << "when it is over, more lies outside again";
  Complete();
  scheduler_.Finish(SequenceId{2});
  EXPECT_EQ(Next(), 1);
}

// A step is expected to take 1 % longer than the profile says.
TEST_F(OffloadChoiceTest, ThereIsAMargin) {
  Add(4, {{}, microseconds(80500)});
  EXPECT_EQ(Next(), 2);
}

TEST_F(OffloadChoiceTest, WhatCannotBeKeptIsServedAsFastAsCanBe) {
  for (int i = 0; i < 30; ++i) Add(1, {{}, milliseconds(15)});
  EXPECT_EQ(Next(), 0) << "30 rows take 30 ms in any case";
}

TEST_F(OffloadChoiceTest, APromptIsBoundByTheTimeThatIsLeftForIt) {
  Add(30, {milliseconds(50), {}});
  EXPECT_EQ(Next(), 2) << "40 ms";
  Complete();
  EXPECT_EQ(Next(), 0) << "the objective is over with the first token";
  Complete();
  Add(30, {milliseconds(50), {}}, kNow - milliseconds(25));
  EXPECT_EQ(Next(), 0) << "25 ms are left, and the prompt takes 30";
  Complete();
  Add(15, {milliseconds(50), milliseconds(85)}, kNow - milliseconds(25));
  EXPECT_EQ(Next(), 4) << "20 ms";
}

TEST_F(OffloadChoiceTest, AStepThatComputesNothingHasNone) {
  Add(4, {{}, milliseconds(85)});
  Next();
  Complete();
  scheduler_.Finish(SequenceId{1});
  EXPECT_EQ(Next(), std::nullopt);
}

// Two batches on two nodes, whose weights come over one bus. What lies outside has 1,000 bytes with
// interval 1.
class SharedBusTest : public OffloadChoiceTest {
 protected:
  SharedBusTest() : OffloadChoiceTest(2) { scheduler_.SetPipeline({2, false}); }
  static OffloadBus Bus(double bytes_per_s) {
    return {bytes_per_s, {{1, 1000}, {2, 500}, {4, 250}, {8, 125}, {0, 0}}};
  }
  // The intervals of the batches' next steps, in the order of `batches`.
  std::vector<std::optional<int>> Steps(OffloadChoice& choice, const std::vector<int>& batches) {
    std::vector<std::optional<int>> intervals;
    for (const int batch : batches) {
      plan_ = scheduler_.NextStep(batch);
      intervals.push_back(choice.Choose(plan_, scheduler_, kNow));
      std::vector<Scheduler::Sampled> sampled;
      for (const Work& work : plan_.work) {
        if (work.sample) sampled.push_back({work.sequence, 3});
      }
      scheduler_.CompleteStep(sampled, batch);
    }
    return intervals;
  }
};

TEST_F(SharedBusTest, BothFindRoomWithAsMuchOutsideAsCanBe) {
  Add(4, {{}, milliseconds(85)});
  Add(4, {{}, milliseconds(85)});
  // Alone 1,000 bytes come in 85 ms: 11,765 in a second.
  OffloadChoice wide(Profile(), Bus(25000));
  EXPECT_THAT(Steps(wide, {0, 1, 0, 1}), ElementsAre(1, 1, 1, 1));
  OffloadChoice narrow(Profile(), Bus(20000));
  EXPECT_THAT(Steps(narrow, {0}), ElementsAre(1)) << "it is alone";
  const std::vector<std::optional<int>> both = Steps(narrow, {1, 0, 1, 0});
  EXPECT_THAT(both, ::testing::AnyOf(ElementsAre(2, 1, 2, 1), ElementsAre(1, 2, 1, 2)))
      << "1,000 and 500 bytes find room, twice 1,000 do not";
  OffloadChoice narrower(Profile(), Bus(13000));
  EXPECT_THAT(Steps(narrower, {0, 1, 0, 1, 0}), ElementsAre(1, 2, 2, 2, 2));
}

TEST_F(SharedBusTest, TheBusIsForThoseOfWhomItLetsMostLieOutside) {
  Add(4, {{}, milliseconds(85)});
  Add(4, {{}, milliseconds(22)});
  // Of the second 250 bytes in 22 ms would be 11,364 in a second, and of the first 1,000 in 85 ms
  // 11,765: the same rate is of more use there.
  OffloadChoice choice(Profile(), Bus(12000 / 0.95));
  EXPECT_THAT(Steps(choice, {0}), ElementsAre(1)) << "it is alone";
  Steps(choice, {1});
  EXPECT_THAT(Steps(choice, {0, 1}), ElementsAre(1, 0));
}

TEST_F(SharedBusTest, ABatchThatHasNothingToDoLeavesTheBus) {
  Add(4, {{}, milliseconds(85)});
  Add(4, {{}, milliseconds(85)});
  OffloadChoice choice(Profile(), Bus(13000));
  Steps(choice, {0, 1});
  EXPECT_THAT(Steps(choice, {0, 1}), ElementsAre(2, 2));
  scheduler_.Finish(SequenceId{2});
  Steps(choice, {1});
  EXPECT_THAT(Steps(choice, {0}), ElementsAre(1));
}

TEST_F(SharedBusTest, WhereNothingFindsRoomAllHaveTheMostInMemory) {
  Add(4, {{}, milliseconds(85)});
  Add(4, {{}, milliseconds(85)});
  OffloadChoice choice(Profile(), Bus(100));
  choice.SetLargest(4);
  Steps(choice, {0, 1});
  EXPECT_THAT(Steps(choice, {0, 1}), ElementsAre(4, 4));
}

TEST_F(OffloadChoiceTest, RefusesWhatNeverCanBeKept) {
  EXPECT_TRUE(choice_.Check({}).ok());
  EXPECT_TRUE(choice_.Check({{}, milliseconds(2)}).ok());
  EXPECT_THAT(
      choice_.Check({{}, microseconds(900)}).message(),
      HasSubstr("a TPOT of 0.9 ms cannot be kept here: a step of one sequence takes 1.01 ms "
                "with all weights in memory"));
  choice_.SetLargest(4);
  const Status refused = choice_.Check({{}, milliseconds(15)});
  EXPECT_EQ(refused.code(), StatusCode::kTryAgain);
  EXPECT_THAT(refused.message(), HasSubstr("takes 20.2 ms with the weights of every 4. slice "
                                           "outside, as the nodes have no memory for more"));
}

}  // namespace
}  // namespace lamina
