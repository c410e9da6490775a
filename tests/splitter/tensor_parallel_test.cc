#include "splitter/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "model/tracer.h"
#include "splitter/slices.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig Llama() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 100;
  config.hidden_size = 64;
  config.intermediate_size = 160;
  config.num_layers = 2;
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.head_dim = 8;
  config.qkv_bias = config.o_bias = config.mlp_bias = true;
  return config;
}

const Op& Find(const Graph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.ops, name, &Op::name);
  EXPECT_NE(found, graph.ops.end()) << name;
  return *found;
}

std::vector<int64_t> Widths(const Graph& graph, const Op& op) {
  std::vector<int64_t> widths = {graph.values[static_cast<size_t>(op.output)].width};
  for (const ValueId input : op.inputs)
    widths.push_back(graph.values[static_cast<size_t>(input)].width);
  return widths;
}

std::vector<std::string> AllReduces(const Graph& graph) {
  std::vector<std::string> names;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kAllReduce) names.push_back(op.name);
  }
  return names;
}

TEST(TensorParallel, OneRankHasTheWholeGraph) {
  const Graph whole = *TraceModel(Llama());
  const Graph same = *GraphOfRank(whole, 1, 0);
  EXPECT_EQ(same.ops.size(), whole.ops.size());
  EXPECT_THAT(AllReduces(same), ElementsAre());
}

TEST(TensorParallel, ALlamaIsSharedByHeadsAndMlpElements) {
  const Graph whole = *TraceModel(Llama());
  for (const int ranks : {2, 4}) {
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(::testing::Message() << "rank " << rank << " of " << ranks);
      const Graph graph = *GraphOfRank(whole, ranks, rank);
      EXPECT_THAT(
          AllReduces(graph),
          ElementsAre("layers.0.self_attn.o_proj.all_reduce", "layers.0.mlp.down_proj.all_reduce",
                      "layers.1.self_attn.o_proj.all_reduce", "layers.1.mlp.down_proj.all_reduce"));
      const Op& k = Find(graph, "layers.0.self_attn.k_proj");
      EXPECT_THAT(k.weights[0].shape, ElementsAre(32 / ranks, 64));
      EXPECT_THAT(k.weights[0].whole, ElementsAre(32, 64));
      EXPECT_THAT(k.weights[0].first, ElementsAre(32 / ranks * rank, 0));
      EXPECT_THAT(k.weights[1].shape, ElementsAre(32 / ranks)) << "its bias";
      EXPECT_THAT(k.weights[1].first, ElementsAre(32 / ranks * rank));
      const Op& down = Find(graph, "layers.0.mlp.down_proj");
      EXPECT_THAT(down.weights[0].shape, ElementsAre(64, 160 / ranks));
      EXPECT_THAT(down.weights[0].first, ElementsAre(0, 160 / ranks * rank));
      ASSERT_EQ(down.weights.size(), rank == 0 ? 2u : 1u) << "the bias is added once";
      EXPECT_THAT(Widths(graph, down), ElementsAre(64, 160 / ranks));
      if (rank == 0) {
        EXPECT_TRUE(down.weights[1].whole.empty());
      }

      const Op& attention = Find(graph, "layers.1.self_attn.attention");
      EXPECT_EQ(attention.num_heads, 8 / ranks);
      EXPECT_EQ(attention.num_kv_heads, 4 / ranks);
      EXPECT_THAT(Widths(graph, attention),
                  ElementsAre(64 / ranks, 64 / ranks, 32 / ranks, 32 / ranks));
      EXPECT_EQ(Find(graph, "layers.0.self_attn.q_rope").num_heads, 8 / ranks);

      EXPECT_THAT(Widths(graph, Find(graph, "layers.0.attention_residual")),
                  ElementsAre(64, 64, 64));
      for (const char* replicated :
           {"embed_tokens", "layers.0.input_layernorm", "norm", "lm_head"}) {
        const Op& op = Find(graph, replicated);
        EXPECT_EQ(op.weights[0].shape, Find(whole, replicated).weights[0].shape);
        EXPECT_TRUE(op.weights[0].whole.empty());
      }
      EXPECT_EQ(graph.values[static_cast<size_t>(graph.logits)].width, 100);
    }
  }
}

// Each element of every tensor that is shared is on one rank.
TEST(TensorParallel, TheRanksPartsMakeUpEachTensor) {
  const Graph whole = *TraceModel(Llama());
  std::map<std::string, std::vector<int>> times;  // by tensor: how often each element is read
  for (int rank = 0; rank < 4; ++rank) {
    const Graph graph = *GraphOfRank(whole, 4, rank);
    for (const Op& op : graph.ops) {
      for (const WeightRef& weight : op.weights) {
        if (weight.whole.empty()) continue;
        const int64_t rows = weight.shape[0],
                      width = weight.shape.size() == 2 ? weight.shape[1] : 1;
        const int64_t whole_width = weight.shape.size() == 2 ? weight.whole[1] : 1;
        std::vector<int>& count = times[weight.name];
        count.resize(static_cast<size_t>(weight.whole[0] * whole_width));
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < width; ++j)
            ++count.at(static_cast<size_t>((weight.first[0] + i) * whole_width +
                                           (weight.shape.size() == 2 ? weight.first[1] : 0) + j));
        }
      }
    }
  }
  EXPECT_EQ(times.size(), 2u * (7 + 5))
      << "seven matrices of each layer and the biases of q, k, v, gate and up";
  for (const auto& [name, count] : times)
    EXPECT_TRUE(std::ranges::all_of(count, [](int n) { return n == 1; })) << name;
}

TEST(TensorParallel, SlicesAreCutAtTheSameResidual) {
  const SlicedModel model = *SplitGraph(*GraphOfRank(*TraceModel(Llama()), 2, 1));
  ASSERT_EQ(model.slices.size(), 3u);
  for (size_t k = 0; k < 2; ++k) {
    ASSERT_EQ(model.slices[k].context_out.size(), 1u);
    EXPECT_EQ(model.graph.values[static_cast<size_t>(model.slices[k].context_out[0])].width, 64);
  }
  EXPECT_EQ(model.graph.values[static_cast<size_t>(model.slices[1].context_out[0])].name,
            "layers.0.mlp_residual");
}

TEST(TensorParallel, WhatCannotBeDividedIsNamed) {
  const Graph whole = *TraceModel(Llama());
  const Status heads = GraphOfRank(whole, 3, 0).status();
  EXPECT_EQ(heads.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      heads.message(),
      HasSubstr(
          "tensor_parallel_size 3 does not divide the 4 kv_heads of layers.0.self_attn.attention"));
  ModelConfig uneven = Llama();
  uneven.intermediate_size = 162;
  EXPECT_THAT(GraphOfRank(*TraceModel(uneven), 4, 0).status().message(),
              HasSubstr("the 162 elements of layers.0.mlp.gate_proj"));
}

// Models that no family has, so that the rule is held to its words.
struct Sketch {
  Tracer tracer;
  Tensor x = Embedding(tracer.tokens(), ModulePath("embed"), 10, 16);

  Tensor Attend(Tensor q, Tensor k, Tensor v, const std::string& name) {
    return Attention(q, k, v, ModulePath(name), {0, 4, 4, 4, 1.0});
  }
  Result<Graph> Rank(Tensor logits) { return GraphOfRank(*tracer.Finish(logits), 2, 0); }
};

TEST(TensorParallel, OfLinearsInARowEverySecondReduces) {
  Sketch sketch;
  Tensor y = Linear(sketch.x, ModulePath("a"), 16, {});
  for (const char* name : {"b", "c", "d"}) y = Linear(y, ModulePath(name), 16, {});
  const Graph graph = *sketch.Rank(Linear(y, ModulePath("head"), 10, {}));
  EXPECT_THAT(AllReduces(graph), ElementsAre("b.all_reduce", "d.all_reduce"));
  EXPECT_THAT(Find(graph, "a").weights[0].shape, ElementsAre(8, 16));
  EXPECT_THAT(Find(graph, "b").weights[0].shape, ElementsAre(16, 8));
  EXPECT_THAT(Find(graph, "head").weights[0].shape, ElementsAre(10, 16));
}

TEST(TensorParallel, SumsOfShardedValuesStaySharded) {
  Sketch sketch;
  const Tensor both = Add(Linear(sketch.x, ModulePath("a"), 32, {}),
                          Linear(sketch.x, ModulePath("b"), 32, {}), ModulePath("sum"));
  const Graph graph =
      *sketch.Rank(Linear(Linear(both, ModulePath("c"), 16, {}), ModulePath("head"), 10, {}));
  EXPECT_THAT(Widths(graph, Find(graph, "sum")), ElementsAre(16, 16, 16));
  EXPECT_THAT(AllReduces(graph), ElementsAre("c.all_reduce"));
}

TEST(TensorParallel, ASumWithAReplicatedValueIsReplicated) {
  Sketch sketch;
  const Tensor mixed = Add(Linear(sketch.x, ModulePath("a"), 16, {}), sketch.x, ModulePath("sum"));
  const Graph graph = *sketch.Rank(Linear(mixed, ModulePath("head"), 10, {}));
  EXPECT_THAT(Find(graph, "a").weights[0].shape, ElementsAre(16, 16));
  EXPECT_THAT(AllReduces(graph), ElementsAre());
}

TEST(TensorParallel, AttentionWhoseInputsAreNeededWholeIsRefused) {
  Sketch sketch;
  // Over all heads.
  const Tensor q =
      RmsNorm(Linear(sketch.x, ModulePath("q"), 16, {}), ModulePath("q_norm"), {.eps = 1e-5});
  const Tensor out = sketch.Attend(q, Linear(sketch.x, ModulePath("k"), 16, {}),
                                   Linear(sketch.x, ModulePath("v"), 16, {}), "attention");
  const Status status =
      sketch.Rank(Linear(Linear(out, ModulePath("o"), 16, {}), ModulePath("head"), 10, {}))
          .status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("attention cannot be shared by head"));
}

}  // namespace
}  // namespace lamina
