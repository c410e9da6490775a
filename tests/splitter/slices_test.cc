#include "splitter/slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "model/tracer.h"
#include "tests/splitter/sound_slices.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig LlamaConfig(int num_layers, int num_heads, int num_kv_heads) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 1000;
  config.hidden_size = 64;
  config.intermediate_size = 160;
  config.num_layers = num_layers;
  config.num_heads = num_heads;
  config.num_kv_heads = num_kv_heads;
  config.head_dim = 64 / num_heads;
  return config;
}

SlicedModel Split(const ModelConfig& config) {
  Result<Graph> graph = TraceModel(config);
  EXPECT_TRUE(graph.ok()) << graph.status();
  Result<SlicedModel> model = SplitGraph(std::move(graph).value());
  EXPECT_TRUE(model.ok()) << model.status();
  return std::move(model).value();
}

std::vector<std::string> Names(const std::vector<Op>& ops) {
  std::vector<std::string> names;
  for (const Op& op : ops) names.push_back(op.name);
  return names;
}

TEST(SlicesTest, LlamaCarriesExactlyTheResidualStream) {
  for (const int num_kv_heads : {8, 2, 1}) {
    const SlicedModel model = Split(LlamaConfig(5, 8, num_kv_heads));
    ASSERT_EQ(model.attentions.size(), 5u);
    ASSERT_EQ(model.slices.size(), 6u);
    ExpectSound(model);
    for (size_t i = 0; i < 5; ++i) {
      const Slice& slice = model.slices[i];
      ASSERT_EQ(slice.context_out.size(), 1u);
      const std::string residual =
          i == 0 ? "embed_tokens" : "layers." + std::to_string(i - 1) + ".mlp_residual";
      EXPECT_EQ(model.graph.values[slice.context_out[0]].name, residual);
      EXPECT_EQ(slice.context_bytes_per_token, 64 * 4);
      EXPECT_EQ(slice.attention, static_cast<int>(i));
      EXPECT_EQ(model.attentions[i].layer, static_cast<int>(i));
      EXPECT_EQ(model.attention_bytes_per_token(static_cast<int>(i)),
                4 * (64 + 2 * num_kv_heads * 8 + 64));
    }
    const Slice& last = model.slices.back();
    EXPECT_EQ(last.attention, -1);
    EXPECT_EQ(last.q, -1);
    EXPECT_TRUE(last.context_out.empty());
    EXPECT_EQ(last.context_bytes_per_token, 0);
  }
}

TEST(SlicesTest, LlamaProgramsStandInTheirOrder) {
  const SlicedModel model = Split(LlamaConfig(2, 4, 2));
  EXPECT_THAT(Names(model.slices[0].program),
              ElementsAre("embed_tokens", "layers.0.input_layernorm", "layers.0.self_attn.q_proj",
                          "layers.0.self_attn.q_rope", "layers.0.self_attn.k_proj",
                          "layers.0.self_attn.k_rope", "layers.0.self_attn.v_proj"));
  EXPECT_THAT(
      Names(model.slices[1].program),
      ElementsAre("layers.0.self_attn.o_proj", "layers.0.attention_residual",
                  "layers.0.post_attention_layernorm", "layers.0.mlp.gate_proj",
                  "layers.0.mlp.up_proj", "layers.0.mlp.silu_mul", "layers.0.mlp.down_proj",
                  "layers.0.mlp_residual", "layers.1.input_layernorm", "layers.1.self_attn.q_proj",
                  "layers.1.self_attn.q_rope", "layers.1.self_attn.k_proj",
                  "layers.1.self_attn.k_rope", "layers.1.self_attn.v_proj"));
  EXPECT_THAT(Names(model.slices[2].program),
              ElementsAre("layers.1.self_attn.o_proj", "layers.1.attention_residual",
                          "layers.1.post_attention_layernorm", "layers.1.mlp.gate_proj",
                          "layers.1.mlp.up_proj", "layers.1.mlp.silu_mul", "layers.1.mlp.down_proj",
                          "layers.1.mlp_residual", "norm", "lm_head"));
  EXPECT_EQ(model.slices[2].program.back().output, model.graph.logits);
}

// "name[shape] name[shape]" of an op's weights.
std::string WeightsOf(const SlicedModel& model, const std::string& op_name) {
  std::string text;
  for (const Op& op : model.graph.ops) {
    if (op.name != op_name) continue;
    for (const WeightRef& weight : op.weights) {
      text += (text.empty() ? "" : " ") + weight.name + "[";
      for (const int64_t dimension : weight.shape)
        text += (text.back() == '[' ? "" : ",") + std::to_string(dimension);
      text += "]";
    }
  }
  return text;
}

TEST(SlicesTest, WeightsHaveTheirHuggingFaceNamesAndShapes) {
  ModelConfig config = LlamaConfig(1, 8, 2);
  const SlicedModel plain = Split(config);
  EXPECT_EQ(WeightsOf(plain, "embed_tokens"), "model.embed_tokens.weight[1000,64]");
  EXPECT_EQ(WeightsOf(plain, "layers.0.input_layernorm"),
            "model.layers.0.input_layernorm.weight[64]");
  EXPECT_EQ(WeightsOf(plain, "layers.0.self_attn.k_proj"),
            "model.layers.0.self_attn.k_proj.weight[16,64]");
  EXPECT_EQ(WeightsOf(plain, "layers.0.self_attn.o_proj"),
            "model.layers.0.self_attn.o_proj.weight[64,64]");
  EXPECT_EQ(WeightsOf(plain, "layers.0.mlp.down_proj"),
            "model.layers.0.mlp.down_proj.weight[64,160]");
  EXPECT_EQ(WeightsOf(plain, "norm"), "model.norm.weight[64]");
  EXPECT_EQ(WeightsOf(plain, "lm_head"), "lm_head.weight[1000,64]");

  config.qkv_bias = config.o_bias = config.mlp_bias = config.tied_head = true;
  config.head_dim = 16;  // 8 heads of 16: wider than the hidden size
  const SlicedModel other = Split(config);
  ExpectSound(other);
  EXPECT_EQ(
      WeightsOf(other, "layers.0.self_attn.q_proj"),
      "model.layers.0.self_attn.q_proj.weight[128,64] model.layers.0.self_attn.q_proj.bias[128]");
  EXPECT_EQ(
      WeightsOf(other, "layers.0.self_attn.o_proj"),
      "model.layers.0.self_attn.o_proj.weight[64,128] model.layers.0.self_attn.o_proj.bias[64]");
  EXPECT_EQ(WeightsOf(other, "layers.0.mlp.up_proj"),
            "model.layers.0.mlp.up_proj.weight[160,64] model.layers.0.mlp.up_proj.bias[160]");
  EXPECT_EQ(WeightsOf(other, "lm_head"), "model.embed_tokens.weight[1000,64]");
}

TEST(SlicesTest, AttentionScaleIsTheInverseRootOfHeadDim) {
  EXPECT_FLOAT_EQ(Split(LlamaConfig(1, 4, 4)).attentions[0].scale, 0.25F);
}

// Attention and MLP of a block read the same norm, and the sum of the rest is formed first.
Graph ParallelBlocks(int num_layers) {
  Tracer tracer;
  Tensor x = Embedding(tracer.tokens(), ModulePath("embed"), 50, 32);
  for (int layer = 0; layer < num_layers; ++layer) {
    const ModulePath at = ModulePath("layers") / layer;
    const Tensor h = RmsNorm(x, at / "norm", {.eps = 1e-5});
    // Written first, yet must not delay q.
    const Tensor mlp = Linear(Linear(h, at / "up", 128), at / "down", 32);
    const Tensor k = Linear(h, at / "k", 32);
    const Tensor v = Linear(h, at / "v", 32);
    const Tensor q =
        Rope(Linear(h, at / "q", 32), tracer.positions(), at / "q_rope", {2, 16, {1, 0.5f}});
    const Tensor out = Attention(
        q, k, v, at / "attention",
        {.layer = layer, .num_heads = 2, .num_kv_heads = 2, .head_dim = 16, .scale = 0.25});
    x = Add(Add(x, mlp, at / "inner"), Linear(out, at / "o", 32), at / "outer");
  }
  Result<Graph> graph = tracer.Finish(Linear(x, ModulePath("head"), 50));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return std::move(graph).value();
}

TEST(SlicesTest, ParallelBlocksComputeTheirMlpWhileTheAttentionRuns) {
  Result<SlicedModel> model = SplitGraph(ParallelBlocks(2));
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectSound(*model);
  EXPECT_THAT(Names(model->slices[0].program),
              ElementsAre("embed", "layers.0.norm", "layers.0.q", "layers.0.q_rope", "layers.0.k",
                          "layers.0.v", "layers.0.up", "layers.0.down", "layers.0.inner"));
  EXPECT_THAT(Names(model->slices[2].program), ElementsAre("layers.1.o", "layers.1.outer", "head"));
  EXPECT_EQ(model->slices[0].context_bytes_per_token, 32 * 4);
}

TEST(SlicesTest, ContextIsHandedThroughSlicesThatDoNotReadIt) {
  Tracer tracer;
  const Tensor x = Embedding(tracer.tokens(), ModulePath("embed"), 50, 32);
  const TracedAttention shape{
      .layer = 0, .num_heads = 2, .num_kv_heads = 2, .head_dim = 16, .scale = 1};
  const Tensor a = Attention(x, x, x, ModulePath("a"), shape);
  const Tensor b = Attention(a, a, a, ModulePath("b"), shape);
  Result<Graph> graph = tracer.Finish(Add(Add(x, a, ModulePath("xa")), b, ModulePath("sum")));
  ASSERT_TRUE(graph.ok());
  Result<SlicedModel> model = SplitGraph(std::move(graph).value());
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectSound(*model);
  EXPECT_THAT(model->slices[0].context_out, ElementsAre(x.id()));
  EXPECT_EQ(model->slices[1].q, model->slices[1].attention_out);
  EXPECT_THAT(Names(model->slices[1].program), ElementsAre("xa"));
}

TEST(SlicesTest, RejectsAnAttentionThatTheLogitsDoNotNeed) {
  Tracer tracer;
  const Tensor x = Embedding(tracer.tokens(), ModulePath("embed"), 50, 32);
  Attention(x, x, x, ModulePath("lost"),
            {.layer = 0, .num_heads = 2, .num_kv_heads = 2, .head_dim = 16, .scale = 1});
  Result<Graph> graph = tracer.Finish(x);
  ASSERT_TRUE(graph.ok());
  const Result<SlicedModel> model = SplitGraph(std::move(graph).value());
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(model.status().message(), HasSubstr("lost"));
}

TEST(SlicesTest, RejectsAGraphThatIsNotInOrder) {
  Graph graph = ParallelBlocks(1);
  graph.ops[3].inputs[0] = static_cast<ValueId>(graph.values.size() - 1);
  EXPECT_EQ(SplitGraph(graph).status().code(), StatusCode::kInvalidArgument);
  graph.ops[3].inputs[0] = static_cast<ValueId>(graph.values.size());
  EXPECT_EQ(SplitGraph(graph).status().code(), StatusCode::kInvalidArgument);
}

TEST(TracerTest, WidthsThatDoNotFitComeBackFromFinish) {
  Tracer tracer;
  const Tensor x = Embedding(tracer.tokens(), ModulePath("model.embed"), 50, 32);
  const Tensor sum = Add(x, Linear(x, ModulePath("model.wide"), 33), ModulePath("model.sum"));
  const Result<Graph> graph = tracer.Finish(sum);
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.status().code(), StatusCode::kInternal);
  EXPECT_THAT(graph.status().message(), HasSubstr("model.sum"));
}

TEST(SlicesTest, UnknownArchitectureNamesThoseThatExist) {
  ModelConfig config = LlamaConfig(1, 4, 4);
  config.architecture = "MambaForCausalLM";
  const Result<Graph> graph = TraceModel(config);
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(graph.status().message(), HasSubstr("LlamaForCausalLM"));
}

TEST(DescribeTest, TextFoldsEqualSlicesAndNamesTheContext) {
  const ModelConfig config = LlamaConfig(5, 8, 2);
  const std::string text = DescribeSlices(Split(config), config);
  EXPECT_THAT(text, HasSubstr("5 attentions, 6 slices"));
  EXPECT_THAT(text, HasSubstr("slices 2..4 are like slice 1"));
  EXPECT_THAT(text, HasSubstr("embed_tokens (256 bytes per token)"));
  EXPECT_THAT(text, HasSubstr("-> logits"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("layers.3.mlp.up_proj")));  // inside the fold
}

TEST(DescribeTest, JsonHoldsEverySlice) {
  const ModelConfig config = LlamaConfig(5, 8, 2);
  const auto json = nlohmann::json::parse(SlicesToJson(Split(config), config));
  ASSERT_EQ(json["slices"].size(), 6u);
  EXPECT_EQ(json["attentions"][2]["bytes_per_token"], 4 * (64 + 16 + 16 + 64));
  EXPECT_EQ(json["slices"][3]["context_in"][0]["value"], "layers.1.mlp_residual");
  EXPECT_EQ(json["slices"][3]["context_bytes_per_token"], 256);
  EXPECT_EQ(json["slices"][3]["program"][3]["weights"][0]["name"],
            "model.layers.2.mlp.gate_proj.weight");
  EXPECT_TRUE(json["slices"][0]["attention_out"].is_null());
  EXPECT_TRUE(json["slices"][5]["attention"].is_null());
}

}  // namespace
}  // namespace lamina
