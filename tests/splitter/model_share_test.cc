#include "splitter/model_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SlicedModel Llama(int num_layers, int64_t vocab_size = 100) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = vocab_size;
  config.hidden_size = 64;
  config.intermediate_size = 160;
  config.num_layers = num_layers;
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.head_dim = 8;
  return *SplitGraph(*TraceModel(config));
}

// Elements of the matrices in slices [first, end), by a count of its own.
int64_t Matrices(const SlicedModel& model, int first, int end) {
  int64_t elements = 0;
  for (int k = first; k < end; ++k) {
    for (const Op& op : model.slices[static_cast<size_t>(k)].program) {
      if (op.kind == OpKind::kLinear) elements += op.weights[0].shape[0] * op.weights[0].shape[1];
    }
  }
  return elements;
}

// The largest stage of the best cut, by trying all.
int64_t SmallestLargest(const SlicedModel& model, int first, int num_stages) {
  const auto num_slices = static_cast<int>(model.slices.size());
  if (num_stages == 1) return Matrices(model, first, num_slices);
  int64_t best = INT64_MAX;
  for (int cut = first + 1; cut <= num_slices - num_stages + 1; ++cut)
    best = std::min(
        best, std::max(Matrices(model, first, cut), SmallestLargest(model, cut, num_stages - 1)));
  return best;
}

TEST(ModelShare, NoCutIntoStagesIsMoreEven) {
  for (const int num_layers : {1, 2, 5, 8}) {
    for (const int64_t vocab_size : {100, 5000}) {
      const SlicedModel model = Llama(num_layers, vocab_size);
      for (int num_stages = 1; num_stages <= num_layers + 1; ++num_stages) {
        SCOPED_TRACE(::testing::Message() << num_layers << " layers, " << num_stages << " stages");
        const Result<std::vector<int>> cuts = CutIntoStages(model, num_stages);
        ASSERT_TRUE(cuts.ok()) << cuts.status();
        ASSERT_EQ(cuts->size(), static_cast<size_t>(num_stages) + 1);
        EXPECT_EQ(cuts->front(), 0);
        EXPECT_EQ(cuts->back(), num_layers + 1);
        int64_t largest = 0;
        for (size_t stage = 0; stage + 1 < cuts->size(); ++stage) {
          EXPECT_LT((*cuts)[stage], (*cuts)[stage + 1]) << "a stage without work";
          largest = std::max(largest, Matrices(model, (*cuts)[stage], (*cuts)[stage + 1]));
        }
        EXPECT_EQ(largest, SmallestLargest(model, 0, num_stages));
      }
    }
  }
}

TEST(ModelShare, MoreStagesThanSlicesAreRefused) {
  const Status status = CutIntoStages(Llama(3), 5).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("pipeline_parallel_size 5: a model of 3 layers can have 1 to 4 stages"));
  EXPECT_FALSE(CutIntoStages(Llama(3), 0).ok());
}

TEST(ModelShare, EveryOperatorIsInOneStage) {
  const SlicedModel model = Llama(5);
  const std::vector<int> cuts = *CutIntoStages(model, 3);
  std::map<std::string, int> seen;
  for (int stage = 0; stage < 3; ++stage) {
    const SliceRange range{cuts[static_cast<size_t>(stage)], cuts[static_cast<size_t>(stage) + 1]};
    const Graph part = PartOf(model, {3, stage}, range);
    for (const Op& op : part.ops) ++seen[op.name];
  }
  for (const Op& op : model.graph.ops) {
    const bool runs = op.kind != OpKind::kTokens && op.kind != OpKind::kPositions &&
                      op.kind != OpKind::kAttention;
    EXPECT_EQ(seen[op.name], runs ? 1 : 0) << op.name;
  }
}

TEST(ModelShare, NeighboursBothNameTheLayerThatTheyAreCutAt) {
  const SlicedModel model = Llama(4);
  std::vector<std::string> texts;
  for (const SliceRange range : {SliceRange{0, 2}, SliceRange{2, 4}, SliceRange{4, 5}})
    texts.push_back(DescribeShare(model, {3, 0}, range));
  EXPECT_THAT(texts, ElementsAre("layers 0..1", "layers 1..3", "layers 3..3"));
}

}  // namespace
}  // namespace lamina
