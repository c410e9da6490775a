// Why sequences of a step failed, as the node tells it that ends the step: a node with the whole
// model, and two that run it together. Attention is played, everything else is real.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "compute_node/all_reduce.h"
#include "compute_node/step_context.h"
#include "compute_node/step_runner.h"
#include "tests/support/join_all.h"
#include "tests/support/played_attention.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace failure_cause_test {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 7;
constexpr SequenceId kGood{1}, kLost{2}, kNotNumbers{3}, kNothingLeft{4};

class FailureCauseTest : public ::testing::Test {
 protected:
  static SessionLimits Limits() {
    return {.max_num_seqs = 4,
            .max_num_batched_tokens = 8,
            .max_model_len = 32,
            .peer_timeout = milliseconds(20'000),
            .num_batches = 1};
  }

  // A node with that share of the model, on which the attention of these sequences fails.
  void Add(const ModelShare& share, Failures failures) {
    WeightOptions weights;
    weights.model_dir = checkpoint_.dir();
    weights.share = share;
    models_.push_back(*device_.Load(weights));
    runners_.push_back(*StepRunner::Create(*models_.back(), Limits(),
                                           std::make_unique<PlayedAttention>(std::move(failures)),
                                           device_));
  }

  void JoinAllNodes() {
    std::vector<ContextExchangeOptions> options(models_.size());
    for (size_t i = 0; i < options.size(); ++i) {
      options[i].epoch = kEpoch;
      options[i].session_token = std::string(kSessionTokenBytes, 't');
      options[i].self = NodeId{static_cast<uint32_t>(11 + i)};
      const SlicedModel& sliced = models_[i]->sliced;
      options[i].payload_bytes = MaxContextBytes({sliced}, Limits().max_num_batched_tokens);
      options[i].sum_bytes =
          MaxPartialSumBytes(sliced, DType::kF32, Limits().max_num_batched_tokens);
    }
    Joined joined = JoinOverLoopback(options);
    for (size_t i = 0; i < joined.size(); ++i) {
      ASSERT_TRUE(joined[i].ok()) << joined[i].status();
      runners_[i]->JoinOthers(*std::move(joined[i]), DType::kF32);
    }
  }

  // Prompts of two tokens, of which some leave nothing to choose from.
  static ComputeOrder Order() {
    ComputeOrder order;
    order.epoch = kEpoch;
    order.step = StepId{1};
    for (const SequenceId sequence : {kGood, kLost, kNotNumbers, kNothingLeft}) {
      NewSequence& added = order.new_sequences.emplace_back();
      added = {sequence, {.temperature = 0}, {1, 2}, 2};
      if (sequence == kNotNumbers)
        added.sampling.logit_bias = {{5, std::numeric_limits<float>::quiet_NaN()}};
      if (sequence == kNothingLeft) {
        added.sampling.min_tokens = 1;
        added.sampling.banned.resize(static_cast<size_t>(TinyCheckpointOptions().vocab_size));
        std::iota(added.sampling.banned.begin(), added.sampling.banned.end(), 0);
      }
      order.work.push_back({sequence,
                            {{NodeId{1}, 2, {}, {}}},
                            0,
                            {1, 2},
                            /*prefill=*/true,
                            /*sample=*/true});
    }
    return order;
  }

  // All nodes carry out the order. Returns the result and which node has told it.
  std::pair<StepResult, size_t> Run() {
    for (const auto& runner : runners_) EXPECT_TRUE(runner->Begin(Order()).ok());
    for (const Deadline deadline = Deadline::After(seconds(20)); !deadline.Passed();) {
      for (size_t i = 0; i < runners_.size(); ++i) {
        std::vector<StepResult> results;
        runners_[i]->Advance(results);
        if (!results.empty()) return {results.front(), i};
      }
    }
    ADD_FAILURE() << "the step did not end";
    return {};
  }

  static void Expect(const StepResult& result, SequenceId sequence, FailureCause cause,
                     const std::string& why) {
    const auto told = std::ranges::find(result.failed, sequence, &FailedSequence::sequence);
    ASSERT_NE(told, result.failed.end()) << sequence;
    EXPECT_EQ(told->cause, cause) << sequence;
    EXPECT_THAT(told->why.message(), HasSubstr(why));
  }

  // kLost has lost its KV, two others are their requests' own fault, and kGood has its token.
  static void ExpectEachItsCause(const StepResult& result) {
    EXPECT_EQ(result.failed.size(), 3u);
    Expect(result, kLost, FailureCause::kKvLost, "memory node m1 is lost");
    Expect(result, kNotNumbers, FailureCause::kRequest, "logits that are not numbers");
    Expect(result, kNothingLeft, FailureCause::kRequest, "logits that are not numbers");
    ASSERT_EQ(result.sampled.size(), 1u);
    EXPECT_EQ(result.sampled[0].sequence, kGood);
    EXPECT_TRUE(result.lost_nodes.empty());
  }

  static Failures LosesOne() { return {{kLost, PeerLost("memory node m1 is lost")}}; }

  const TinyCheckpoint checkpoint_{{}};
  WorkerTeam team_{1};
  CpuDevice device_{team_};
  std::vector<std::unique_ptr<LoadedModel>> models_;
  std::vector<std::unique_ptr<StepRunner>> runners_;  // same indices
};

TEST_F(FailureCauseTest, OfANodeWithTheWholeModel) {
  Add({}, LosesOne());
  ExpectEachItsCause(Run().first);
}

TEST_F(FailureCauseTest, TravelsWithAContextToTheStageThatEndsTheStep) {
  Add({.num_stages = 2, .stage = 0}, LosesOne());
  Add({.num_stages = 2, .stage = 1}, {});
  ASSERT_NO_FATAL_FAILURE(JoinAllNodes());
  const auto [result, ended_by] = Run();
  EXPECT_EQ(ended_by, 1u) << "another one than lost it";
  ExpectEachItsCause(result);
}

TEST_F(FailureCauseTest, TravelsWithARanksShareOfTheLastSum) {
  Add({.num_ranks = 2, .rank = 0}, {});
  Add({.num_ranks = 2, .rank = 1}, LosesOne());
  ASSERT_NO_FATAL_FAILURE(JoinAllNodes());
  const auto [result, ended_by] = Run();
  EXPECT_EQ(ended_by, 0u) << "another one than lost it";
  ExpectEachItsCause(result);
}

}  // namespace failure_cause_test
}  // namespace lamina
