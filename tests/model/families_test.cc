// The slices of every model family.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text_file.h"
#include "model/families/registry.h"
#include "splitter/slices.h"
#include "splitter/tensor_parallel.h"
#include "tests/splitter/sound_slices.h"
#include "tests/support/families.h"
#include "tests/support/thread_seconds.h"

namespace lamina {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::Families;
using testing::Family;
using ::testing::HasSubstr;
using testing::ThreadSeconds;

class FamilySlicesTest : public ::testing::TestWithParam<Family> {};

TEST_P(FamilySlicesTest, AreSoundAndCarryTheResidualStreamOnly) {
  const Result<ModelConfig> config = ModelConfig::Load(GetParam().dir);
  ASSERT_TRUE(config.ok()) << config.status();
  Result<Graph> graph = TraceModel(*config);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Result<SlicedModel> model = SplitGraph(std::move(*graph));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(std::ssize(model->attentions), config->num_layers);
  ExpectSound(*model);
  for (size_t k = 0; k + 1 < model->slices.size(); ++k) {
    EXPECT_EQ(model->slices[k].context_out.size(), 1u);
    EXPECT_EQ(model->slices[k].context_bytes_per_token, config->hidden_size * 4) << "slice " << k;
  }
}

// Two ranks: each attention is shared by head, and sums stand behind it and behind the MLP.
TEST_P(FamilySlicesTest, AreSharedByTwoRanks) {
  const ModelConfig config = *ModelConfig::Load(GetParam().dir);
  const Graph whole = *TraceModel(config);
  const Result<Graph> rank = GraphOfRank(whole, 2, 1);
  if (config.architecture.starts_with("Olmo")) {
    // Their norms of q and k are over all heads.
    EXPECT_EQ(rank.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(rank.status().message(), HasSubstr("layers.0.self_attn."));
    return;
  }
  ASSERT_TRUE(rank.ok()) << rank.status();
  int sums = 0;
  for (const Op& op : rank->ops) {
    sums += op.kind == OpKind::kAllReduce ? 1 : 0;
    if (op.kind != OpKind::kAttention) continue;
    EXPECT_EQ(op.num_heads, config.num_heads / 2);
    EXPECT_EQ(op.num_kv_heads, config.num_kv_heads / 2);
  }
  // Experts are not shared, but the one for all tokens is, which Qwen 2 and Llama 4 have.
  int expected = 2 * config.num_layers;
  for (const Op& op : whole.ops) {
    const bool is_experts = op.kind == OpKind::kExperts;
    const bool has_shared = op.kind == OpKind::kSigmoidGate ||
                            (is_experts && op.routing == ExpertRouting::kSigmoidInputs);
    expected += (has_shared ? 1 : 0) - (is_experts ? 1 : 0);
  }
  // The 350m release of OPT ends in two matrices, which are shared like an MLP.
  EXPECT_EQ(sums, expected + (GetParam().name == "opt-350m" ? 1 : 0));
}

class FamilyCodeTest : public ::testing::TestWithParam<Family> {};

// Shapes only: no weight is read. A second of this thread's own time, in the release build:
// scripts/test.sh leaves it out of the others.
TEST_P(FamilyCodeTest, SlicesOfAModelWithSeventyBillionParametersAreFoundInASecond) {
  ModelConfig config = *ModelConfig::Load(GetParam().dir);
  config.num_layers = 80;
  config.hidden_size = 8192;
  config.intermediate_size = 28672;
  config.num_heads = 64;
  config.num_kv_heads = config.architecture == "OPTForCausalLM" ? 64 : 8;
  config.head_dim = 128;
  if (!config.windows.empty()) config.windows.resize(80, {4096});
  if (!config.dense_layers.empty()) config.dense_layers.resize(80);
  if (!config.rotated_layers.empty()) config.rotated_layers.resize(80, true);
  config.rope_scaling.divisors.resize(64, 2);
  const double start = ThreadSeconds();
  const Result<SlicedModel> model = SplitGraph(*TraceModel(config));
  EXPECT_LT(ThreadSeconds() - start, 1);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->slices.size(), 81u);
}

std::vector<Family> FamiliesWithCode() {
  std::vector<Family> with_code = Families();
  std::erase_if(with_code, [](const Family& family) { return family.exported; });
  return with_code;
}

INSTANTIATE_TEST_SUITE_P(All, FamilySlicesTest, ::testing::ValuesIn(Families()),
                         [](const auto& info) { return TestName(info.param); });
INSTANTIATE_TEST_SUITE_P(All, FamilyCodeTest, ::testing::ValuesIn(FamiliesWithCode()),
                         [](const auto& info) { return TestName(info.param); });

TEST(FamiliesTest, EveryArchitectureHasAFixture) {
  for (const Architecture& architecture : Architectures()) {
    const bool found = std::ranges::any_of(Families(), [&](const Family& family) {
      return ModelConfig::Load(family.dir)->architecture == architecture.name;
    });
    EXPECT_TRUE(found) << architecture.name;
  }
}

std::vector<int64_t> WindowsOf(const std::string& family, const char* patch) {
  ModelConfig as_is = *ModelConfig::Load(testing::FamilyOf(family).dir);
  json config = {{"architectures", json::array({as_is.architecture})},
                 {"vocab_size", 100},
                 {"hidden_size", 64},
                 {"intermediate_size", 64},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 8},
                 {"head_dim", 8},
                 {"max_position_embeddings", 64},
                 {"rms_norm_eps", 1e-6},
                 {"query_pre_attn_scalar", 8}};
  config.update(json::parse(patch));
  const Result<ModelConfig> parsed = ModelConfig::Parse({.config = config.dump()}, "dir");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok()) return {-1};
  std::vector<int64_t> sizes;
  for (const AttentionWindow& window : parsed->windows) sizes.push_back(window.size);
  return sizes;
}

TEST(FamiliesTest, WindowsAreThoseOfTheLayersThatSlide) {
  EXPECT_THAT(WindowsOf("mistral", R"({})"), ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(WindowsOf("mistral", R"({"sliding_window": 12})"), ElementsAre(12, 12, 12));
  EXPECT_THAT(WindowsOf("mistral", R"({"sliding_window": null})"), ElementsAre());
  EXPECT_THAT(WindowsOf("qwen2", R"({"sliding_window": 12})"), ElementsAre());
  EXPECT_THAT(
      WindowsOf("qwen2",
                R"({"use_sliding_window": false, "sliding_window": 12, "max_window_layers": 1})"),
      ElementsAre());
  EXPECT_THAT(
      WindowsOf("qwen2",
                R"({"use_sliding_window": true, "sliding_window": 12, "max_window_layers": 1})"),
      ElementsAre(0, 12, 12));
  EXPECT_THAT(
      WindowsOf("qwen3",
                R"({"use_sliding_window": true, "sliding_window": 12, "max_window_layers": 2})"),
      ElementsAre(0, 0, 12));
  EXPECT_THAT(WindowsOf("gemma2", R"({"sliding_window": 12})"), ElementsAre(12, 0, 12));
  EXPECT_THAT(WindowsOf("gemma3", R"({"sliding_window": 12})"), ElementsAre(12, 12, 12));
  EXPECT_THAT(WindowsOf("gemma3", R"({"sliding_window": 12, "sliding_window_pattern": 2})"),
              ElementsAre(12, 0, 12));
  EXPECT_THAT(WindowsOf("phi3", R"({})"), ElementsAre());
  EXPECT_THAT(WindowsOf("phi3", R"({"sliding_window": 12})"), ElementsAre(12, 12, 12));
  EXPECT_THAT(WindowsOf("gemma2", R"({"sliding_window": 12,
                         "layer_types": ["full_attention", "sliding_attention", "full_attention"]})"),
              ElementsAre(0, 12, 0));
}

ModelConfig Patched(const std::string& family, const char* patch) {
  const Result<std::string> text = ReadTextFile(testing::FamilyOf(family).dir + "/config.json");
  json config = json::parse(text.ok() ? *text : "{}");
  config.update(json::parse(patch));
  Result<ModelConfig> parsed = ModelConfig::Parse({.config = config.dump()}, "dir");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : ModelConfig();
}

TEST(FamiliesTest, LayersWithExpertsAreThoseThatTheFileSays) {
  const auto with_experts = [](const char* patch) {
    const ModelConfig config = Patched("qwen2-moe", patch);
    std::vector<bool> has;
    for (int layer = 0; layer < config.num_layers; ++layer) has.push_back(config.HasExperts(layer));
    return has;
  };
  EXPECT_THAT(with_experts(R"({"mlp_only_layers": null})"), ElementsAre(true, true, true));
  EXPECT_THAT(with_experts(R"({"mlp_only_layers": [0, 2]})"), ElementsAre(false, true, false));
  EXPECT_THAT(with_experts(R"({"mlp_only_layers": [], "decoder_sparse_step": 2})"),
              ElementsAre(false, true, false));
  EXPECT_EQ(Patched("qwen3-moe", R"({"norm_topk_prob": null})").routing,
            ExpertRouting::kSoftmaxOverAll);
}

// Newer files have a rotation for each type of layer.
TEST(FamiliesTest, ChunksAreInTheLayersThatAreRotated) {
  const auto windows = [](const char* patch) { return Patched("llama4", patch).windows; };
  constexpr AttentionWindow kNone, kChunk{12, true}, kFull{8192, true};
  EXPECT_THAT(windows(R"({"layer_types": null})"), ElementsAre(kChunk, kChunk, kNone, kChunk));
  EXPECT_THAT(windows(R"({"layer_types": null, "no_rope_layers": []})"),
              ElementsAre(kChunk, kChunk, kChunk, kNone));
  EXPECT_THAT(windows(R"({"layer_types": null, "no_rope_layers": null, "no_rope_layer_interval": 2,
                          "attention_chunk_size": 8192})"),
              ElementsAre(kFull, kNone, kFull, kNone));
  EXPECT_THAT(windows(R"({"attention_chunk_size": null})"), ElementsAre());
  EXPECT_THAT(windows(R"({"layer_types": ["full_attention", "full_attention", "chunked_attention",
                                          "full_attention"]})"),
              ElementsAre(kNone, kNone, kChunk, kNone));
  // As the first published files have it.
  EXPECT_GT(Patched("llama4", R"({"attn_temperature_tuning": 4})").query_growth_period, 0);
  EXPECT_EQ(Patched("llama4", R"({"attn_temperature_tuning": 0})").query_growth_period, 0);
}

// What a text_config lacks has the default of the library that wrote it.
TEST(FamiliesTest, ATextConfigMayLackWhatHasADefault) {
  const ModelConfig gemma = Patched("gemma3-images", R"({"text_config": {
      "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}})");
  EXPECT_EQ(gemma.num_heads, 8);
  EXPECT_EQ(gemma.num_kv_heads, 4);
  EXPECT_EQ(gemma.head_dim, 256);
  EXPECT_EQ(gemma.vocab_size, 262208);
  EXPECT_EQ(gemma.max_positions, 131072);
  EXPECT_EQ(gemma.WindowOf(4), AttentionWindow{1024});
  EXPECT_EQ(gemma.WindowOf(5), AttentionWindow{});
  EXPECT_TRUE(gemma.tied_head);
}

TEST(FamiliesTest, BothSpellingsOfTheRotationsOfGemma3MeanTheSame) {
  const ModelConfig older = Patched("gemma3", "{}");
  const ModelConfig newer = Patched("gemma3", R"({"rope_theta": null, "rope_scaling": null,
      "rope_local_base_freq": null, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0}}})");
  for (const ModelConfig& config : {older, newer}) {
    EXPECT_EQ(config.rope_theta, 1e6);
    EXPECT_EQ(config.local_rope_theta, 1e4);
    EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kLinear);
    EXPECT_EQ(config.rope_scaling.factor, 8);
  }
}

struct Refusal {
  const char* family;
  const char* patch;
  const char* says;
};

class RefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, NamesTheKey) {
  const Result<std::string> text =
      ReadTextFile(testing::FamilyOf(GetParam().family).dir + "/config.json");
  ASSERT_TRUE(text.ok()) << text.status();
  json config = json::parse(*text);
  config.update(json::parse(GetParam().patch));
  const Result<ModelConfig> parsed = ModelConfig::Parse({.config = config.dump()}, "dir");
  ASSERT_FALSE(parsed.ok());
  EXPECT_THAT(parsed.status().message(),
              HasSubstr(std::string("dir/config.json: \"") + GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusalTest,
    ::testing::Values(
        Refusal{"llama2", R"({"hidden_act": "relu"})", "hidden_act"},
        Refusal{"llama2", R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor"},
        Refusal{"qwen2", R"({"hidden_act": "gelu"})", "hidden_act"},
        Refusal{"qwen2", R"({"use_sliding_window": "yes"})", "use_sliding_window"},
        Refusal{"mistral", R"({"sliding_window": 0})", "sliding_window"},
        Refusal{"mistral", R"({"layer_types": ["full_attention"]})", "layer_types"},
        Refusal{"mistral", R"({"layer_types": ["full_attention", "chunked_attention"]})",
                "layer_types"},
        Refusal{"mistral", R"({"layer_types": "full_attention"})", "layer_types"},
        Refusal{"qwen3", R"({"head_dim": null})", "head_dim"},
        Refusal{"opt", R"({"activation_function": "gelu"})", "activation_function"},
        Refusal{"opt", R"({"enable_bias": false})", "enable_bias"},
        Refusal{"opt", R"({"layer_norm_elementwise_affine": false})",
                "layer_norm_elementwise_affine"},
        Refusal{"mixtral", R"({"num_local_experts": null})", "num_local_experts"},
        Refusal{"mixtral", R"({"num_experts_per_tok": 9})", "num_experts_per_tok"},
        Refusal{"gemma2", R"({"hidden_activation": "gelu"})", "hidden_activation"},
        Refusal{"gemma2", R"({"query_pre_attn_scalar": null})", "query_pre_attn_scalar"},
        Refusal{"gemma2", R"({"attn_logit_softcapping": -5})", "attn_logit_softcapping"},
        Refusal{"gemma3", R"({"attn_logit_softcapping": 50})", "attn_logit_softcapping"},
        Refusal{"gemma3", R"({"use_bidirectional_attention": true})",
                "use_bidirectional_attention"},
        Refusal{"gemma3", R"({"sliding_window_pattern": 0})", "sliding_window_pattern"},
        Refusal{"qwen2-moe", R"({"shared_expert_intermediate_size": null})",
                "shared_expert_intermediate_size"},
        Refusal{"qwen2-moe", R"({"use_sliding_window": true})", "use_sliding_window"},
        Refusal{"qwen2-moe", R"({"mlp_only_layers": [3]})", "mlp_only_layers"},
        Refusal{"qwen3-moe", R"({"decoder_sparse_step": 0})", "decoder_sparse_step"},
        Refusal{"qwen3-moe", R"({"moe_intermediate_size": null})", "moe_intermediate_size"},
        Refusal{"qwen3-moe", R"({"num_experts": 0})", "num_experts"},
        Refusal{"phi3", R"({"attention_bias": true})", "attention_bias"},
        Refusal{"phi3", R"({"partial_rotary_factor": 0.4})", "partial_rotary_factor"},
        Refusal{"phi3", R"({"partial_rotary_factor": 1.5})", "partial_rotary_factor"},
        Refusal{"olmo2", R"({"hidden_act": "gelu"})", "hidden_act"},
        Refusal{"granite", R"({"logits_scaling": 0})", "logits_scaling"},
        Refusal{"granite", R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor"},
        Refusal{"glm4", R"({"hidden_act": "gelu"})", "hidden_act"},
        Refusal{"nemotron", R"({"hidden_act": "silu"})", "hidden_act"},
        Refusal{"nemotron", R"({"mlp_bias": 1})", "mlp_bias"},
        Refusal{"stablelm", R"({"hidden_act": "gelu"})", "hidden_act"},
        Refusal{"stablelm", R"({"use_qkv_bias": 1})", "use_qkv_bias"},
        Refusal{"gemma2", R"({"quantization_config": "w4"})", "quantization_config"},
        Refusal{"llama4", R"({"attention_chunk_size": 0})", "attention_chunk_size"},
        Refusal{"llama4", R"({"no_rope_layers": [1, 1, 0]})", "no_rope_layers"},
        Refusal{"llama4", R"({"no_rope_layers": [1, 1, 0, 2]})", "no_rope_layers"},
        Refusal{"llama4", R"({"layer_types": ["sliding_attention"]})", "layer_types"},
        Refusal{"llama4", R"({"floor_scale": 0})", "floor_scale"},
        Refusal{"llama4", R"({"attn_temperature_tuning": "on"})", "attn_temperature_tuning"},
        Refusal{"llama4", R"({"moe_layers": [4]})", "moe_layers"},
        Refusal{"llama4", R"({"interleave_moe_layer_step": 0})", "interleave_moe_layer_step"},
        Refusal{"smollm3", R"({"use_sliding_window": true})", "use_sliding_window"},
        Refusal{"smollm3", R"({"no_rope_layer_interval": 0})", "no_rope_layer_interval"},
        Refusal{"olmo3", R"({"sliding_window": 0})", "sliding_window"},
        Refusal{"gemma3-images", R"({"text_config": null})", "text_config"},
        Refusal{"gemma3-images", R"({"text_config": []})", "text_config"}),
    [](const auto& info) {
      return std::string(info.param.says) + "_" + std::to_string(info.index);
    });

}  // namespace
}  // namespace lamina
