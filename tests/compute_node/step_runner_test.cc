// The loop over steps on a node that runs the first stage of a model. This test plays its attention
// and holds the node that runs the second stage.
#include "compute_node/step_runner.h"

#include <gtest/gtest.h>

#include <limits>

#include "compute_node/step_context.h"
#include "tests/support/faulty_fabric.h"
#include "tests/support/join_all.h"
#include "tests/support/played_attention.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace {

using std::chrono::seconds;

class StepRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WeightOptions weights;
    weights.model_dir = checkpoint_.dir();
    weights.share = {/*num_stages=*/2, /*stage=*/0, /*num_ranks=*/1, /*rank=*/0};
    model_ = *device_.Load(weights);
    const SessionLimits limits{
        .max_num_seqs = 4, .max_num_batched_tokens = 8, .max_model_len = 32, .num_batches = 1};
    runner_ = *StepRunner::Create(*model_, limits, std::make_unique<PlayedAttention>(), device_);
    Join(limits);
  }

  void Join(const SessionLimits& limits) {
    FaultPlan plan;
    plan.full = [this] { return full_; };
    std::vector<ContextExchangeOptions> options(2);
    for (uint32_t i = 0; i < 2; ++i) {
      options[i].epoch = 7;
      options[i].session_token = std::string(kSessionTokenBytes, 't');
      options[i].self = NodeId{11 + i};
      options[i].payload_bytes = MaxContextBytes({model_->sliced}, limits.max_num_batched_tokens);
    }
    Joined joined = JoinOverLoopback(options, Deadline::After(seconds(10)), plan);
    ASSERT_TRUE(joined[0].ok() && joined[1].ok());
    runner_->JoinOthers(*std::move(joined[0]), DType::kF32);
    second_ = *std::move(joined[1]);
  }

  // A prompt of two tokens.
  static ComputeOrder Order() {
    ComputeOrder order;
    order.epoch = 7;
    order.step = StepId{1};
    order.new_sequences.push_back({SequenceId{1}, {.temperature = 0}, {1, 2}, 2});
    order.work.push_back({SequenceId{1},
                          {{NodeId{1}, 2, {}, {}}},
                          0,
                          {1, 2},
                          /*prefill=*/true,
                          /*sample=*/true});
    return order;
  }

  bool ContextArrived() {
    second_->Poll();
    return second_->arrived(0, MessageKind::kContext, 0);
  }

  const TinyCheckpoint checkpoint_{{}};
  WorkerTeam team_{1};
  CpuDevice device_{team_};
  bool full_ = false;  // there is no room on the way between the two nodes
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<ContextExchange> second_;
  std::vector<StepResult> results_;
};

TEST_F(StepRunnerTest, AStepThatHasLeftLeavesTheNodeIdle) {
  EXPECT_TRUE(runner_->idle());
  ASSERT_TRUE(runner_->Begin(Order()).ok());
  EXPECT_FALSE(runner_->idle());
  while (runner_->Advance(results_)) {
  }
  EXPECT_TRUE(runner_->idle());
  EXPECT_TRUE(ContextArrived());
  EXPECT_TRUE(results_.empty()) << "it goes on at the other node";
}

TEST_F(StepRunnerTest, RefusesAnIntervalThatCannotBe) {
  ComputeOrder order = Order();
  order.offload_interval = -1;
  EXPECT_EQ(runner_->Begin(std::move(order)).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(runner_->idle());
  order = Order();
  order.offload_interval = std::numeric_limits<int32_t>::max();
  EXPECT_TRUE(runner_->Begin(std::move(order)).ok()) << "nothing lies outside here";
}

TEST_F(StepRunnerTest, ANodeIsNotIdleBeforeItsContextHasLeft) {
  full_ = true;
  ASSERT_TRUE(runner_->Begin(Order()).ok());
  while (runner_->Advance(results_)) {
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(runner_->idle());
    EXPECT_FALSE(runner_->Advance(results_)) << "there is nothing to do but to wait";
    EXPECT_FALSE(ContextArrived());
  }
  full_ = false;
  EXPECT_FALSE(runner_->Advance(results_));
  EXPECT_TRUE(runner_->idle());
  EXPECT_TRUE(ContextArrived());
}

}  // namespace
}  // namespace lamina
