// Logits of more rows than are kept at a time, which are computed in pieces.
#include "compute_node/slice_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace slice_executor_test {

constexpr int kRows = 16;

class SliceExecutorTest : public ::testing::Test {
 protected:
  void Load(const TinyCheckpointOptions& options) {
    checkpoint_.emplace(options);
    WeightOptions weights;
    weights.model_dir = checkpoint_->dir();
    model_ = *LoadedModel::Load(weights, team_);
  }

  // Runs all slices up to the last one, which is run for `kept` only. What stands for attention
  // differs by row.
  void RunAll(SliceExecutor& executor, std::span<const int> kept) const {
    std::vector<TokenId> tokens(kRows);
    std::vector<int32_t> positions(kRows);
    std::iota(tokens.begin(), tokens.end(), 3);
    std::iota(positions.begin(), positions.end(), 0);
    executor.Begin(tokens, positions);
    const auto num_slices = static_cast<int>(model_->sliced.slices.size());
    for (int k = 0; k < num_slices; ++k) {
      if (k + 1 == num_slices) executor.KeepRows(k, kept);
      ASSERT_EQ(executor.Run(k), nullptr);
      if (k + 1 == num_slices) return;
      const ValueId out = model_->sliced.slices[static_cast<size_t>(k) + 1].attention_out;
      for (int64_t i = 0; i < kRows * executor.width(out); ++i)
        executor.value(out)[i] = std::sin(static_cast<float>(i + 17 * k));
    }
  }

  template <typename Token>
  static void ExpectEqual(const Token& a, const Token& b) {
    EXPECT_EQ(a.token, b.token);
    EXPECT_EQ(a.logprob, b.logprob);
    EXPECT_EQ(a.rank, b.rank);
    ASSERT_EQ(a.top.size(), b.top.size());
    for (size_t i = 0; i < a.top.size(); ++i) {
      EXPECT_EQ(a.top[i].token, b.top[i].token);
      EXPECT_EQ(a.top[i].logprob, b.top[i].logprob);
    }
  }

  WorkerTeam team_{2};
  std::optional<TinyCheckpoint> checkpoint_;
  std::unique_ptr<LoadedModel> model_;
};

TEST_F(SliceExecutorTest, PiecesOfTheLogitsAreTheWhole) {
  Load({});
  std::vector<int> kept(kRows - 1);
  std::iota(kept.begin(), kept.end(), 1);
  const SamplingParams params{.temperature = 0.7f, .seed = 5, .num_logprobs = 3};
  const std::vector<TokenId> prompt = {3, 4};
  std::vector<SampleWork> sampled;
  std::vector<ScoreWork> scored;
  for (size_t row = 0; row < kept.size(); ++row) {
    if (row % 3 == 0) {
      sampled.push_back({row, &params, {prompt}});
    } else {
      scored.push_back({row, static_cast<TokenId>(row), 2});
    }
  }
  std::vector<std::vector<TokenScore>> scores;
  std::vector<std::vector<SampledToken>> tokens;
  for (const int logit_rows : {kRows, 15, 14, 4, 1}) {
    SliceExecutor executor(model_->sliced, *model_->weights, kRows, logit_rows, team_);
    for (int step = 0; step < 2; ++step) {
      RunAll(executor, kept);
      executor.Score(scored, scores.emplace_back(scored.size()));
      executor.Sample(sampled, tokens.emplace_back(sampled.size()));
    }
  }
  for (size_t run = 1; run < scores.size(); ++run) {
    SCOPED_TRACE(run);
    for (size_t i = 0; i < scored.size(); ++i) ExpectEqual(scores[run][i], scores[0][i]);
    for (size_t i = 0; i < sampled.size(); ++i) ExpectEqual(tokens[run][i], tokens[0][i]);
  }
  EXPECT_NE(scores[0][0].logprob, scores[0][1].logprob);
}

// A step of 4,096 rows with a vocabulary of 128k would have 2 GB of logits.
TEST_F(SliceExecutorTest, TheLogitsOfAStepTakeNoMoreThanALimit) {
  Load({.vocab_size = 2048});
  const int rows = SliceExecutor::LogitRows(model_->sliced, *model_->weights, 1 << 20);
  EXPECT_EQ(rows, SliceExecutor::kLogitBytes / (2048 * 4));
  EXPECT_EQ(SliceExecutor::LogitRows(model_->sliced, *model_->weights, 100), 100);
  const auto bytes = [&](int max_rows, int logit_rows) {
    return SliceExecutor::ValueBytes(model_->sliced, max_rows, logit_rows);
  };
  EXPECT_EQ(bytes(100, 100) - bytes(100, 10), 90 * 2048 * 4) << "nothing else is as wide";
}

// Where other values are as wide as the logits, none of them takes the place of what is still
// needed.
TEST_F(SliceExecutorTest, AVocabularyAsWideAsTheModelChangesNothing) {
  Load({.vocab_size = 32, .hidden_size = 32, .intermediate_size = 32});
  std::vector<int> kept(kRows);
  std::iota(kept.begin(), kept.end(), 0);
  std::vector<ScoreWork> scored;
  for (size_t row = 0; row < kRows; ++row) scored.push_back({row, static_cast<TokenId>(row), 1});
  std::vector<std::vector<TokenScore>> scores;
  for (const int logit_rows : {kRows, 3}) {
    SliceExecutor executor(model_->sliced, *model_->weights, kRows, logit_rows, team_);
    RunAll(executor, kept);
    executor.Score(scored, scores.emplace_back(scored.size()));
  }
  for (size_t i = 0; i < scored.size(); ++i) ExpectEqual(scores[1][i], scores[0][i]);
}

}  // namespace slice_executor_test
}  // namespace lamina
