// Ranks that run a model together against the executor that runs it alone.
#include "splitter/tensor_parallel.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compute_node/compute_device.h"
#include "compute_node/slice_executor.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace tensor_parallel_test {

constexpr int kRows = 5;

TinyCheckpointOptions Shape(bool bias) {
  TinyCheckpointOptions options;
  options.num_heads = 8;
  options.num_kv_heads = 4;
  options.attention_bias = options.mlp_bias = bias;
  return options;
}

// Stands for attention: each head's output is its q and a part of its kv_head's k and v. What is in
// the wrong place gives other logits.
void Attend(const Op& op, SliceRunner& slices) {
  const int group = op.num_heads / op.num_kv_heads;
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < op.num_heads; ++head) {
      for (int i = 0; i < op.head_dim; ++i) {
        const int at = (row * op.num_heads + head) * op.head_dim + i;
        const int kv = (row * op.num_kv_heads + head / group) * op.head_dim + i;
        slices.value(op.output)[at] = slices.value(op.inputs[0])[at] +
                                      0.5f * slices.value(op.inputs[1])[kv] -
                                      2 * slices.value(op.inputs[2])[kv];
      }
    }
  }
}

// Rank 0's logits [kRows, vocab], with the sums that `num_ranks` executors exchange by hand.
std::vector<float> Logits(const WeightOptions& options, int num_ranks, int64_t& weight_bytes) {
  WorkerTeam team(1);
  CpuDevice device(team);
  std::vector<std::unique_ptr<LoadedModel>> models;
  std::vector<std::unique_ptr<SliceRunner>> ranks;
  const std::vector<TokenId> tokens = {5, 17, 90, 3, 44};
  const std::vector<int32_t> positions = {0, 1, 7, 30, 100};
  for (int rank = 0; rank < num_ranks; ++rank) {
    WeightOptions of_rank = options;
    of_rank.share = {1, 0, num_ranks, rank};
    Result<std::unique_ptr<LoadedModel>> model = device.Load(of_rank);
    EXPECT_TRUE(model.ok()) << model.status();
    models.push_back(std::move(*model));
    ranks.push_back(*device.MakeSlices(*models.back(), kRows));
    ranks.back()->Begin(tokens, positions);
  }
  weight_bytes = models.back()->weight_bytes;
  const SlicedModel& sliced = models[0]->sliced;
  for (int k = 0; k < static_cast<int>(sliced.slices.size()); ++k) {
    const int attention = sliced.slices[static_cast<size_t>(k)].attention;
    for (bool ended = false; !ended;) {
      std::vector<float> sum;
      for (int rank = 0; rank < num_ranks; ++rank) {
        const Op* op = ranks[static_cast<size_t>(rank)]->Run(k);
        if (op == nullptr) {
          ended = true;
          continue;
        }
        EXPECT_FALSE(ended) << "ranks stop at different places";
        const auto n =
            static_cast<size_t>(kRows * sliced.graph.values[static_cast<size_t>(op->output)].width);
        sum.resize(n);
        for (size_t i = 0; i < n; ++i)
          sum[i] += ranks[static_cast<size_t>(rank)]->value(op->inputs[0])[i];
        if (rank < num_ranks - 1) continue;
        for (const auto& each : ranks) std::ranges::copy(sum, each->value(op->output));
        const bool last = attention < 0 && op->name == "layers.2.mlp.down_proj.all_reduce";
        if (last) ranks.resize(1);  // only rank 0 holds the head
        if (last) num_ranks = 1;
      }
    }
    if (attention < 0) break;
    for (int rank = 0; rank < num_ranks; ++rank)
      Attend(models[static_cast<size_t>(rank)]->sliced.attentions[static_cast<size_t>(attention)],
             *ranks[static_cast<size_t>(rank)]);
  }
  const ValueId logits = sliced.graph.logits;
  const float* const begin = ranks[0]->value(logits);
  return {begin, begin + kRows * sliced.graph.values[static_cast<size_t>(logits)].width};
}

void ExpectRanksAreTheWhole(const WeightOptions& options) {
  int64_t whole_bytes = 0;
  const std::vector<float> whole = Logits(options, 1, whole_bytes);
  for (const int num_ranks : {2, 4}) {
    int64_t bytes = 0;
    const std::vector<float> together = Logits(options, num_ranks, bytes);
    ASSERT_EQ(together.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i)
      ASSERT_NEAR(together[i], whole[i], 1e-4 * (1 + std::abs(whole[i]))) << i;
    EXPECT_LT(bytes, whole_bytes * 7 / 10) << "a rank holds its parts only";
  }
}

TEST(TensorParallelSlices, RanksTogetherGiveTheLogitsOfTheWhole) {
  for (const bool bias : {false, true}) {
    const TinyCheckpoint checkpoint(Shape(bias));
    WeightOptions options;
    options.model_dir = checkpoint.dir();
    ExpectRanksAreTheWhole(options);
  }
}

TEST(TensorParallelSlices, DummyWeightsOfRanksArePartsOfTheSameTensors) {
  const TinyCheckpoint checkpoint(Shape(false));
  WeightOptions options;
  options.model_dir = checkpoint.dir();
  options.load_format = LoadFormat::kDummy;
  ExpectRanksAreTheWhole(options);
}

TEST(TensorParallelSlices, WithoutRowsRanksStillMeetAtEverySum) {
  const TinyCheckpoint checkpoint(Shape(false));
  WorkerTeam team(1);
  CpuDevice device(team);
  WeightOptions options;
  options.model_dir = checkpoint.dir();
  options.share = {1, 0, 2, 0};
  const std::unique_ptr<LoadedModel> model = *device.Load(options);
  const std::unique_ptr<SliceRunner> slices = *device.MakeSlices(*model, kRows);
  slices->Begin({}, {});
  int sums = 0;
  for (int k = 0; k < static_cast<int>(model->sliced.slices.size()); ++k) {
    while (slices->Run(k) != nullptr) ++sums;
  }
  EXPECT_EQ(sums, 2 * 3);
}

}  // namespace tensor_parallel_test
}  // namespace lamina
