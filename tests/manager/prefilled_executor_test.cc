#include "manager/prefilled_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/support/fake_executor.h"

namespace lamina::testing {
namespace {

using ::testing::ElementsAre;

class PrefilledExecutorTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeExecutor::Shared> nodes_ = std::make_shared<FakeExecutor::Shared>();
  PrefilledExecutor executor_{std::make_unique<FakeExecutor>(nodes_)};
};

TEST_F(PrefilledExecutorTest, WhatIsNotOfStepsGoesToTheNodes) {
  nodes_->kv_nodes = {{kNode, 1000}, {kOther, 2000}};
  nodes_->groups = {{kCompute, kOther}};
  nodes_->next_turn = TimePoint(std::chrono::seconds(7));
  EXPECT_EQ(executor_.kv_nodes().size(), 2u);
  EXPECT_EQ(executor_.KvNodeOf(kNode), kNode);
  EXPECT_EQ(executor_.KvNodeOf(kCompute), kOther);
  EXPECT_EQ(executor_.nodes().size(), 3u);
  EXPECT_EQ(executor_.Turn(TimePoint(std::chrono::seconds(5))), nodes_->next_turn);
  EXPECT_THAT(nodes_->turns, ElementsAre(TimePoint(std::chrono::seconds(5))));
  executor_.Leave(kOther);
  EXPECT_THAT(nodes_->left, ElementsAre(kOther)) << "else it stays busy with its session";
}

TEST_F(PrefilledExecutorTest, APromptIsFollowedByATokenThatNobodyComputed) {
  nodes_->answer_at_once = false;
  std::vector<ExecutorEvent> events;
  executor_.Start([&](ExecutorEvent event) { events.push_back(std::move(event)); });
  StepPlan plan;
  plan.step = StepId{1};
  plan.work.resize(1);
  plan.work[0].sequence = SequenceId{1};
  plan.work[0].prefill = plan.work[0].sample = true;
  NewSequence announced;
  announced.sequence = SequenceId{1};
  announced.tokens = {1, 2};
  executor_.Submit(plan, {announced});
  ASSERT_EQ(nodes_->submitted.size(), 1u);
  EXPECT_FALSE(nodes_->submitted[0].work[0].sample);
  EXPECT_TRUE(nodes_->announced.empty()) << "it is told of with its first decode";
  nodes_->on_event(FakeExecutor::Answer(nodes_->submitted[0]));
  ASSERT_EQ(events.size(), 1u);
  ASSERT_EQ(events[0].result.sampled.size(), 1u);
  EXPECT_EQ(events[0].result.sampled[0].sequence, SequenceId{1});
}

}  // namespace
}  // namespace lamina::testing
