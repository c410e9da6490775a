#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Llama() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "vocab_size": 32000, "hidden_size": 512,
    "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-06, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": false})");
}

Result<ModelConfig> Parse(const json& config, const std::string& generation = "") {
  return ModelConfig::Parse({.config = config.dump(), .generation = generation}, "dir");
}

ModelConfig Parsed(const json& config, const std::string& generation = "") {
  Result<ModelConfig> result = Parse(config, generation);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : ModelConfig();
}

TEST(ModelConfigTest, ReadsTheShippedModel) {
  const Result<ModelConfig> config = ModelConfig::Load(SourcePath("/models/tiny-stories"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->model_type, "llama");
  EXPECT_EQ(config->dtype, DType::kBF16);
  EXPECT_EQ(config->vocab_size, 1024);
  EXPECT_EQ(config->hidden_size, 256);
  EXPECT_EQ(config->intermediate_size, 640);
  EXPECT_EQ(config->num_layers, 4);
  EXPECT_EQ(config->num_heads, 8);
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->max_positions, 1024);
  EXPECT_DOUBLE_EQ(config->norm_eps, 1e-5);
  EXPECT_DOUBLE_EQ(config->rope_theta, 10000);
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_FALSE(config->qkv_bias || config->o_bias || config->mlp_bias || config->tied_head);
  EXPECT_EQ(config->bos_token, 1);
  EXPECT_THAT(config->eos_tokens, ElementsAre(2));
}

TEST(ModelConfigTest, OptionalKeysHaveTheirDefaults) {
  json config = Llama();
  for (const char* key : {"model_type", "torch_dtype", "num_key_value_heads", "hidden_act",
                          "bos_token_id", "eos_token_id", "tie_word_embeddings"})
    config.erase(key);
  config["head_dim"] = nullptr;
  const ModelConfig parsed = Parsed(config);
  EXPECT_EQ(parsed.num_kv_heads, 16);
  EXPECT_EQ(parsed.head_dim, 32);
  EXPECT_EQ(parsed.dtype, DType::kBF16);
  EXPECT_DOUBLE_EQ(parsed.rope_theta, 10000);
  EXPECT_FALSE(parsed.bos_token.has_value());
  EXPECT_TRUE(parsed.eos_tokens.empty());
}

TEST(ModelConfigTest, ReadsWhatDiffersBetweenModels) {
  json config = Llama();
  config.erase("torch_dtype");
  config["dtype"] = "float32";
  config["head_dim"] = 128;
  config["attention_bias"] = config["mlp_bias"] = config["tie_word_embeddings"] = true;
  config["rope_theta"] = 500000;
  const ModelConfig parsed = Parsed(config);
  EXPECT_EQ(parsed.dtype, DType::kF32);
  EXPECT_EQ(parsed.head_dim, 128);
  EXPECT_TRUE(parsed.qkv_bias && parsed.o_bias && parsed.mlp_bias && parsed.tied_head);
  EXPECT_DOUBLE_EQ(parsed.rope_theta, 500000);
}

TEST(ModelConfigTest, EosTokensOfBothFilesAreJoined) {
  json config = Llama();
  config["eos_token_id"] = {7, 9};
  const ModelConfig parsed = Parsed(config, R"({"bos_token_id": 5, "eos_token_id": [9, 11, 7]})");
  EXPECT_THAT(parsed.eos_tokens, ElementsAre(7, 9, 11));
  EXPECT_EQ(parsed.bos_token, 1);  // config.json says so
}

TEST(ModelConfigTest, SamplingDefaultsComeFromTheGenerationFile) {
  const ModelConfig parsed = Parsed(
      Llama(),
      R"({"temperature": 0.6, "top_p": 0.9, "top_k": 40, "min_p": null, "do_sample": true})");
  EXPECT_FLOAT_EQ(parsed.generation.temperature.value_or(-1), 0.6F);
  EXPECT_FLOAT_EQ(parsed.generation.top_p.value_or(-1), 0.9F);
  EXPECT_EQ(parsed.generation.top_k, 40);
  EXPECT_FALSE(parsed.generation.min_p.has_value());
  EXPECT_FALSE(parsed.generation.repetition_penalty.has_value());
  EXPECT_FALSE(Parsed(Llama()).generation.temperature.has_value());
}

const char kLlama3Scaling[] =
    R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";

TEST(ModelConfigTest, BothSpellingsOfRotaryScalingMeanTheSame) {
  json old_spelling = Llama();
  old_spelling["rope_theta"] = 500000.0;
  old_spelling["rope_scaling"] = json::parse(kLlama3Scaling);
  json new_spelling = Llama();
  new_spelling["rope_parameters"] = json::parse(kLlama3Scaling);
  new_spelling["rope_parameters"]["rope_theta"] = 500000.0;
  for (const json& spelling : {old_spelling, new_spelling}) {
    const ModelConfig parsed = Parsed(spelling);
    EXPECT_DOUBLE_EQ(parsed.rope_theta, 500000);
    EXPECT_EQ(parsed.rope_scaling.kind, RopeScaling::Kind::kLlama3);
    EXPECT_DOUBLE_EQ(parsed.rope_scaling.factor, 8);
    EXPECT_DOUBLE_EQ(parsed.rope_scaling.original_max_positions, 8192);
  }
  json plain = Llama();
  plain["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 20000}};
  EXPECT_EQ(Parsed(plain).rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_DOUBLE_EQ(Parsed(plain).rope_theta, 20000);
}

struct BadKey {
  const char* patch;  // JSON merge patch: null removes a key
  StatusCode code;
  const char* says;
};

class BadConfigTest : public ::testing::TestWithParam<BadKey> {};

TEST_P(BadConfigTest, IsRejectedInOneSentenceThatNamesFileAndKey) {
  json config = Llama();
  config.merge_patch(json::parse(GetParam().patch));
  const Result<ModelConfig> result = Parse(config);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), GetParam().code) << result.status();
  EXPECT_THAT(result.status().message(),
              AllOf(HasSubstr("dir/config.json"), HasSubstr(GetParam().says)));
  EXPECT_THAT(result.status().message(), ::testing::Not(HasSubstr("\n")));
}

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
constexpr StatusCode kUnimplemented = StatusCode::kUnimplemented;
INSTANTIATE_TEST_SUITE_P(
    All, BadConfigTest,
    ::testing::Values(
        BadKey{R"({"hidden_size": null})", kInvalid,
               R"("hidden_size" is missing, expected an integer from 1)"},
        BadKey{R"({"hidden_size": "512"})", kInvalid, R"("hidden_size" is "512")"},
        BadKey{R"({"hidden_size": 512.5})", kInvalid, R"("hidden_size" is 512.5)"},
        BadKey{R"({"vocab_size": 0})", kInvalid, R"("vocab_size" is 0)"},
        BadKey{R"({"vocab_size": 18446744073709551615})", kInvalid,
               R"("vocab_size" is 18446744073709551615)"},
        BadKey{R"({"num_hidden_layers": -3})", kInvalid, R"("num_hidden_layers" is -3)"},
        BadKey{R"({"intermediate_size": 99999999999})", kInvalid,
               R"("intermediate_size" is 99999999999)"},
        BadKey{R"({"num_key_value_heads": 3})", kInvalid,
               R"("num_key_value_heads" is 3, expected a divisor of num_attention_heads = 16)"},
        BadKey{R"({"num_attention_heads": 12})", kInvalid,
               R"("num_attention_heads" is 12, expected a divisor of hidden_size = 512)"},
        BadKey{R"({"head_dim": 33})", kInvalid, R"("head_dim" is 33)"},
        BadKey{R"({"num_attention_heads": 512, "num_key_value_heads": 512})", kInvalid,
               "even heads"},
        BadKey{R"({"rms_norm_eps": null})", kInvalid, R"("rms_norm_eps" is missing)"},
        BadKey{R"({"max_position_embeddings": 4294967296})", kInvalid,
               R"("max_position_embeddings" is 4294967296)"},
        BadKey{R"({"tie_word_embeddings": 1})", kInvalid,
               R"("tie_word_embeddings" is 1, expected true or false)"},
        BadKey{R"({"eos_token_id": [2, 32000]})", kInvalid, R"("eos_token_id" is [2,32000])"},
        BadKey{R"({"bos_token_id": "<s>"})", kInvalid, R"("bos_token_id" is "<s>")"},
        BadKey{R"({"architectures": "LlamaForCausalLM"})", kInvalid,
               R"("architectures" is "LlamaForCausalLM", expected a list)"},
        BadKey{R"({"architectures": ["MambaForCausalLM"]})", kUnimplemented,
               "forward code: LlamaForCausalLM"},
        BadKey{R"({"architectures": ["MambaForCausalLM"]})", kUnimplemented,
               "scripts/export_model.py can export another one"},
        BadKey{R"({"architectures": ["DeepseekV3ForCausalLM"]})", kUnimplemented,
               "DeepseekV3ForCausalLM has none: its attention is over latent vectors"},
        BadKey{R"({"torch_dtype": "float8"})", kUnimplemented, R"("torch_dtype" is "float8")"},
        BadKey{R"({"hidden_act": "gelu"})", kUnimplemented,
               R"("hidden_act" is "gelu", expected "silu")"},
        BadKey{R"({"quantization_config": {"bits": 4}})", kUnimplemented,
               R"(quantization_config: "quant_method")"},
        BadKey{R"({"quantization_config": 4})", kInvalid, R"("quantization_config" is 4)"},
        BadKey{R"({"quantization_config": {"quant_method": "bitsandbytes"}})", kUnimplemented,
               R"("quant_method" is "bitsandbytes")"},
        BadKey{R"({"quantization_config": {"quant_method": "gptq", "bits": 3, "group_size": 128}})",
               kUnimplemented, R"("bits" is 3, expected 4 or 8)"},
        BadKey{R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 0}})",
               kInvalid, R"("group_size" is 0)"},
        BadKey{R"({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128,
                                           "version": "gemv"}})",
               kUnimplemented, R"("version" is "gemv")"},
        BadKey{R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}})",
               kInvalid, R"("weight_block_size" is [128])"},
        BadKey{R"({"quantization_config": {"quant_method": "compressed-tensors",
                                           "format": "nvfp4-pack-quantized"}})",
               kUnimplemented, R"("format" is "nvfp4-pack-quantized")"},
        BadKey{R"({"quantization_config": {"quant_method": "compressed-tensors",
                                           "format": "pack-quantized", "config_groups": {}}})",
               kInvalid, R"("config_groups" is {})"},
        BadKey{R"({"rope_scaling": 8})", kInvalid, R"("rope_scaling" is 8)"},
        BadKey{R"({"rope_scaling": {"type": "mrope", "mrope_section": [4, 4, 8]}})", kUnimplemented,
               R"(rope_scaling: "type" is "mrope")"},
        BadKey{R"({"rope_scaling": {"type": "yarn"}})", kInvalid,
               R"(rope_scaling: "factor" is missing)"},
        BadKey{R"({"rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 2}})", kInvalid,
               R"("rope_theta" is 1, expected more than 1, for yarn)"},
        BadKey{
            R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 2], "long_factor": []}})",
            kInvalid, R"(rope_scaling: "short_factor" is [1,2], expected 16 positive numbers)"},
        BadKey{R"({"rope_scaling": {"type": "longrope", "short_mscale": 1.2}})", kUnimplemented,
               R"(rope_scaling: "short_mscale" is 1.2)"},
        BadKey{R"({"rope_parameters": {"partial_rotary_factor": 0.5}})", kUnimplemented,
               R"(rope_parameters: "partial_rotary_factor" is 0.5)"},
        BadKey{R"({"rope_scaling": {"type": "linear"}})", kInvalid,
               R"(rope_scaling: "factor" is missing)"},
        BadKey{
            R"({"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
                               "original_max_position_embeddings": 8192}})",
            kInvalid, R"(rope_parameters: "high_freq_factor" is 4)"},
        BadKey{R"({"rope_theta": -1})", kInvalid, R"("rope_theta" is -1)"}));

TEST(ModelConfigTest, BrokenFilesAreNamed) {
  const Result<ModelConfig> cut = ModelConfig::Parse({.config = "{\"vocab_size\": "}, "dir");
  EXPECT_EQ(cut.status().code(), kInvalid);
  EXPECT_THAT(cut.status().message(), HasSubstr("dir/config.json is not JSON"));
  EXPECT_THAT(ModelConfig::Parse({.config = "[]"}, "dir").status().message(),
              HasSubstr("expected a JSON object"));
  EXPECT_THAT(Parse(Llama(), "{").status().message(),
              HasSubstr("dir/generation_config.json is not JSON"));
  EXPECT_THAT(Parse(Llama(), R"({"temperature": "hot"})").status().message(),
              HasSubstr("dir/generation_config.json: \"temperature\" is \"hot\""));
}

// Every request that leaves the choice to the model would be refused later.
TEST(ModelConfigTest, SamplingDefaultsThatNoRequestCouldUseAreRefused) {
  for (const char* file :
       {R"({"top_p": 0})", R"({"top_p": 0.0})", R"({"top_p": -0.5})", R"({"top_p": 1.5})"}) {
    const Status status = Parse(Llama(), file).status();
    EXPECT_EQ(status.code(), kInvalid) << file;
    EXPECT_THAT(status.message(), HasSubstr("dir/generation_config.json: \"top_p\" is ")) << file;
  }
  for (const char* file : {R"({"top_k": -2})", R"({"min_p": 2})", R"({"temperature": -1})",
                           R"({"repetition_penalty": 0})"})
    EXPECT_EQ(Parse(Llama(), file).status().code(), kInvalid) << file;
  EXPECT_TRUE(Parse(Llama(), R"({"top_p": null, "temperature": 0})").ok());
}

TEST(ModelConfigTest, MissingFileIsNamedAndTheGenerationFileMayBeAbsent) {
  const Result<ModelConfig> missing = ModelConfig::Load("/nonexistent-model");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("/nonexistent-model/config.json"));
  const TinyCheckpoint checkpoint({.head_dim = 16, .rope_scaling = kLlama3Scaling});
  const Result<ModelConfig> config = ModelConfig::Load(checkpoint.dir());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kLlama3);
}

}  // namespace
}  // namespace lamina
