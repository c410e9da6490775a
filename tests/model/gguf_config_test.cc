#include "model/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_config.h"
#include "model/model_files.h"
#include "tests/support/families.h"
#include "tests/support/gguf_models.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufFixture;
using testing::GgufWriter;
using ::testing::HasSubstr;

// Each of the families' files says what the config.json of its checkpoint says.
TEST(GgufConfigTest, SaysWhatConfigJsonSays) {
  for (const char* name : {"llama31", "mixtral", "qwen2", "qwen3", "qwen2-moe", "qwen3-moe",
                           "gemma2", "gemma3", "phi3", "olmo2", "granite", "smollm3", "gpt-oss"}) {
    SCOPED_TRACE(name);
    const ModelConfig expected = *ModelConfig::Load(testing::FamilyOf(name).dir);
    const Result<ModelConfig> config = ModelConfig::Load(GgufFixture(name) + ".gguf");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->architecture, expected.architecture);
    EXPECT_EQ(config->dtype, expected.dtype);
    EXPECT_EQ(config->vocab_size, expected.vocab_size);
    EXPECT_EQ(config->hidden_size, expected.hidden_size);
    EXPECT_EQ(config->intermediate_size, expected.intermediate_size);
    EXPECT_EQ(config->num_layers, expected.num_layers);
    EXPECT_EQ(config->num_heads, expected.num_heads);
    EXPECT_EQ(config->num_kv_heads, expected.num_kv_heads);
    EXPECT_EQ(config->head_dim, expected.head_dim);
    EXPECT_EQ(config->max_positions, expected.max_positions);
    EXPECT_FLOAT_EQ(static_cast<float>(config->norm_eps), static_cast<float>(expected.norm_eps));
    EXPECT_EQ(config->rope_theta, expected.rope_theta);
    EXPECT_EQ(config->qkv_bias, expected.qkv_bias);
    EXPECT_EQ(config->o_bias, expected.o_bias);
    EXPECT_EQ(config->mlp_bias, expected.mlp_bias);
    EXPECT_EQ(config->tied_head, expected.tied_head);
    EXPECT_EQ(config->windows, expected.windows);
    EXPECT_EQ(config->attention_soft_cap, expected.attention_soft_cap);
    EXPECT_EQ(config->logit_soft_cap, expected.logit_soft_cap);
    EXPECT_EQ(config->head_norm, expected.head_norm);
    EXPECT_EQ(config->num_experts, expected.num_experts);
    EXPECT_EQ(config->experts_per_token, expected.experts_per_token);
    EXPECT_EQ(config->expert_size, expected.expert_size);
    EXPECT_EQ(config->shared_expert_size, expected.shared_expert_size);
    EXPECT_EQ(config->routing, expected.routing);
    for (int layer = 0; layer < expected.num_layers; ++layer) {
      EXPECT_EQ(config->HasExperts(layer), expected.HasExperts(layer)) << layer;
      EXPECT_EQ(config->IsRotated(layer), expected.IsRotated(layer)) << layer;
    }
    EXPECT_EQ(config->local_rope_theta, expected.local_rope_theta);
    EXPECT_FLOAT_EQ(static_cast<float>(config->attention_multiplier),
                    static_cast<float>(expected.attention_multiplier));
    EXPECT_FLOAT_EQ(static_cast<float>(config->embedding_multiplier),
                    static_cast<float>(expected.embedding_multiplier));
    EXPECT_FLOAT_EQ(static_cast<float>(config->residual_multiplier),
                    static_cast<float>(expected.residual_multiplier));
    EXPECT_FLOAT_EQ(static_cast<float>(config->logit_multiplier),
                    static_cast<float>(expected.logit_multiplier));
    EXPECT_EQ(config->attention_sinks, expected.attention_sinks);
    EXPECT_EQ(config->swiglu_limit, expected.swiglu_limit);
    EXPECT_FLOAT_EQ(static_cast<float>(config->rope_scaling.attention_factor),
                    static_cast<float>(expected.rope_scaling.attention_factor));
    const auto frequencies_of = [](const ModelConfig& c) {
      return InverseFrequencies(c.rope_theta, c.rotary_dim(), c.rope_scaling);
    };
    const std::vector<float> frequencies = frequencies_of(*config),
                             expected_frequencies = frequencies_of(expected);
    ASSERT_EQ(frequencies.size(), expected_frequencies.size());
    for (size_t i = 0; i < frequencies.size(); ++i)
      EXPECT_NEAR(frequencies[i], expected_frequencies[i], 1e-6f * expected_frequencies[i]) << i;
  }
}

class GgufKeysTest : public ::testing::Test {
 protected:
  // What every architecture needs.
  void AddSizes(const std::string& architecture, const std::string& without = "") {
    writer_.AddString("general.architecture", architecture);
    for (const auto& [key, value] : {std::pair("context_length", 64u),
                                     {"embedding_length", 32u},
                                     {"block_count", 2u},
                                     {"feed_forward_length", 48u},
                                     {"attention.head_count", 4u}}) {
      if (key != without) writer_.AddUint32(architecture + "." + key, value);
    }
    writer_.AddFloat(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
    writer_.AddTensor("token_embd.weight", {96, 32}, 1, std::string(96 * 32 * 2, '\0'));
  }
  Result<ModelConfig> Load() {
    WriteFile(path_, writer_.File());
    return ModelConfig::Load(path_);
  }
  void ExpectError(StatusCode code, const std::string& says) {
    const Status status = Load().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(path_), HasSubstr(says)));
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "m.gguf";
  GgufWriter writer_;
};

TEST_F(GgufKeysTest, DefaultsAreThoseOfConverters) {
  AddSizes("llama");
  writer_.AddFloat("llama.rope.scale_linear", 4);
  writer_.AddStrings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<|im_end|>"});
  writer_.AddInts("tokenizer.ggml.token_type", {2, 3, 3, 3});
  writer_.AddString("tokenizer.ggml.model", "llama");
  const Result<ModelConfig> config = Load();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(config->rope_scaling.factor, 4);
  EXPECT_TRUE(config->tied_head);
  EXPECT_EQ(config->dtype, DType::kF16);
  EXPECT_EQ(config->bos_token, 1);
  EXPECT_THAT(config->eos_tokens, ElementsAre(2, 3));
}

// <|end|> ends an answer of Phi-3, and a message of an answer of gpt-oss.
TEST_F(GgufKeysTest, WhatEndsAnAnswerOfGptOss) {
  AddSizes("llama");
  writer_.AddStrings("tokenizer.ggml.tokens",
                     {"a", "<|startoftext|>", "<|return|>", "<|end|>", "<|call|>", "<|return|>"});
  writer_.AddInts("tokenizer.ggml.token_type", {1, 3, 3, 3, 3, 1});
  writer_.AddString("tokenizer.ggml.model", "gpt2");
  writer_.AddUint32("tokenizer.ggml.eos_token_id", 2);
  const Result<ModelConfig> config = Load();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->eos_tokens, ElementsAre(2, 4));
}

TEST_F(GgufKeysTest, AnArchitectureThatIsNotKnown) {
  AddSizes("bloom");
  ExpectError(StatusCode::kUnimplemented,
              "\"general.architecture\" is \"bloom\", expected one of llama, qwen2, qwen3, "
              "qwen2moe");
}

TEST_F(GgufKeysTest, NoArchitecture) {
  ExpectError(StatusCode::kUnimplemented, "\"general.architecture\" is missing");
}

TEST_F(GgufKeysTest, AKeyThatIsMissing) {
  AddSizes("llama", "block_count");
  ExpectError(StatusCode::kInvalidArgument, "\"llama.block_count\" is missing");
}

TEST_F(GgufKeysTest, AKeyOfAnotherType) {
  AddSizes("llama", "block_count");
  writer_.AddString("llama.block_count", "two");
  ExpectError(StatusCode::kInvalidArgument,
              "\"llama.block_count\" is \"two\", expected an integer");
}

TEST_F(GgufKeysTest, LayersThatDiffer) {
  AddSizes("llama");
  writer_.AddInts("llama.attention.head_count_kv", {4, 2});
  ExpectError(StatusCode::kUnimplemented, "the same number for all layers");
}

TEST_F(GgufKeysTest, ScalingThatIsNotKnown) {
  AddSizes("qwen2");
  writer_.AddString("qwen2.rope.scaling.type", "yarn");
  ExpectError(StatusCode::kUnimplemented, "\"qwen2.rope.scaling.type\" is \"yarn\"");
}

TEST_F(GgufKeysTest, ARotationOfPartOfAHead) {
  AddSizes("llama");
  writer_.AddUint32("llama.rope.dimension_count", 4);
  ExpectError(StatusCode::kUnimplemented, "\"llama.rope.dimension_count\" is 4");
}

TEST_F(GgufKeysTest, RopeFrequenciesOfAnotherNumber) {
  AddSizes("llama");
  writer_.AddTensor("rope_freqs.weight", {3}, 0, std::string(12, '\0'));
  ExpectError(StatusCode::kInvalidArgument, "rope_freqs.weight");
}

TEST_F(GgufKeysTest, RopeFrequenciesOfZero) {
  AddSizes("llama");
  writer_.AddTensor("rope_freqs.weight", {4}, 0, std::string(16, '\0'));
  ExpectError(StatusCode::kInvalidArgument, "not positive");
}

TEST_F(GgufKeysTest, SizesThatAreAbsurd) {
  AddSizes("llama", "embedding_length");
  writer_.AddUint32("llama.embedding_length", 1u << 29);
  ExpectError(StatusCode::kInvalidArgument, "m.gguf, as a config.json: \"hidden_size\"");
}

TEST(ModelFilesTest, NamesAndFilesOfFoldersAndGgufFiles) {
  EXPECT_EQ(ModelName("/models/tiny-stories"), "tiny-stories");
  EXPECT_EQ(ModelName("/models/tiny-stories//"), "tiny-stories");
  EXPECT_EQ(ModelName("/models/m-Q4_0.gguf"), "m-Q4_0");
  EXPECT_EQ(ModelName("/hub/models--org--a-b/snapshots/0123abcd/"), "org/a-b");
  EXPECT_EQ(ModelName("/hub/models--gpt2/snapshots/0123abcd"), "gpt2");
  EXPECT_EQ(ModelName("/hub/models--org--a/snapshots/0123abcd/m-Q8_0.gguf"), "m-Q8_0");
  EXPECT_EQ(ModelName("/x/snapshots/0123abcd"), "0123abcd");
  EXPECT_EQ(ModelName("snapshots/0123abcd"), "0123abcd");
  EXPECT_EQ(ModelName("m-00001-of-00002.gguf"), "m");
  const TemporaryFolder folder;
  WriteFile(folder / "b.gguf", "12345");
  WriteFile(folder / "a", "1");
  EXPECT_THAT(DescribeModelFiles(folder.path()),
              ElementsAre(HasSubstr("a 1 "), HasSubstr("b.gguf 5 ")));
  EXPECT_THAT(DescribeModelFiles(folder / "b.gguf"), ElementsAre(HasSubstr("b.gguf 5 ")));
  EXPECT_THAT(DescribeModelFiles(folder / "c-00001-of-00002.gguf"),
              ElementsAre("c-00001-of-00002.gguf 0 0", "c-00002-of-00002.gguf 0 0"));
}

}  // namespace
}  // namespace lamina
