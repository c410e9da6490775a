#include "model/rotary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/model_config.h"

namespace lamina {
namespace {

using nlohmann::json;
using ::testing::FloatEq;
using ::testing::Pointwise;

// Rotary embeddings as a Llama with four heads of 16 elements has them.
ModelConfig WithScaling(const json& scaling, const json& patch = json::object()) {
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"vocab_size", 100},
                 {"hidden_size", 64},
                 {"intermediate_size", 64},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", 4},
                 {"max_position_embeddings", 256},
                 {"rms_norm_eps", 1e-6},
                 {"rope_theta", 10000.0},
                 {"rope_scaling", scaling}};
  config.update(patch);
  Result<ModelConfig> parsed = ModelConfig::Parse({.config = config.dump()}, "dir");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : ModelConfig();
}

std::vector<float> FrequenciesOf(const ModelConfig& c) {
  return InverseFrequencies(c.rope_theta, c.rotary_dim(), c.rope_scaling);
}

TEST(RotaryTest, PlainFrequenciesFallFromOneToTheInverseOfTheta) {
  EXPECT_THAT(InverseFrequencies(10000, 8, {}), Pointwise(FloatEq(), {1.0F, 0.1F, 0.01F, 0.001F}));
}

TEST(RotaryTest, LinearScalingDividesEveryFrequency) {
  EXPECT_THAT(FrequenciesOf(WithScaling({{"type", "linear"}, {"factor", 4}, {"rope_theta", 100}})),
              Pointwise(FloatEq(), {0.25F, 0.14058533F, 0.079056941F, 0.044456985F, 0.025F,
                                    0.014058533F, 0.0079056941F, 0.0044456985F}));
}

TEST(RotaryTest, Llama3ScalingStretchesLongWavelengthsKeepsShortOnesAndBlendsBetween) {
  // theta and head_dim of Llama 3.1 8B.
  const std::vector<float> plain = InverseFrequencies(500000, 128, {});
  const std::vector<float> scaled =
      InverseFrequencies(500000, 128, {.kind = RopeScaling::Kind::kLlama3, .factor = 8});
  ASSERT_EQ(scaled.size(), 64u);
  int kept = 0, blended = 0, stretched = 0;
  for (size_t j = 0; j < 64; ++j) {
    const double wavelength = 2 * 3.14159265358979 / double{plain[j]};
    if (wavelength < 2048) {
      EXPECT_FLOAT_EQ(scaled[j], plain[j]) << j;
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_FLOAT_EQ(scaled[j], plain[j] / 8) << j;
      ++stretched;
    } else {
      const double s = (8192 / wavelength - 1) / 3;
      EXPECT_NEAR(scaled[j], (1 - s) * double{plain[j]} / 8 + s * double{plain[j]}, 1e-9) << j;
      ++blended;
    }
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(blended, 6);
  EXPECT_EQ(stretched, 29);
}

// The numbers of the following tests are those of transformers 4.57.6.
TEST(RotaryTest, YarnKeepsShortWavelengthsDividesLongOnesAndSharpensTheSoftmax) {
  const ModelConfig plain =
      WithScaling({{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}});
  EXPECT_THAT(FrequenciesOf(plain),
              Pointwise(FloatEq(), {1.0F, 0.23717082F, 0.049999997F, 0.0079056947F, 0.0024999999F,
                                    0.00079056947F, 0.00025000001F, 7.9056947e-05F}));
  EXPECT_FLOAT_EQ(static_cast<float>(plain.rope_scaling.attention_factor), 1.13862944F);

  const ModelConfig all_keys = WithScaling({{"rope_type", "yarn"},
                                            {"factor", 8},
                                            {"original_max_position_embeddings", 512},
                                            {"beta_fast", 8},
                                            {"beta_slow", 2},
                                            {"truncate", false},
                                            {"mscale", 1},
                                            {"mscale_all_dim", 0.7}});
  EXPECT_THAT(FrequenciesOf(all_keys),
              Pointwise(FloatEq(), {1.0F, 0.31622776F, 0.1F, 0.0090110758F, 0.00125F,
                                    0.00039528473F, 0.00012500001F, 3.9528473e-05F}));
  EXPECT_FLOAT_EQ(static_cast<float>(all_keys.rope_scaling.attention_factor), 1.05445651F);
}

// Without the original length it is max_position_embeddings, and the file's attention_factor has
// the say.
TEST(RotaryTest, YarnOfAPartOfAHead) {
  ModelConfig config =
      WithScaling({{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 1.5}});
  config.rotary_part = 0.5;
  EXPECT_THAT(FrequenciesOf(config),
              Pointwise(FloatEq(), {1.0F, 0.0625F, 0.0024999999F, 0.00025000001F}));
  EXPECT_DOUBLE_EQ(config.rope_scaling.attention_factor, 1.5);
}

TEST(RotaryTest, LongRopeDividesByTheListOfTheLongestSequence) {
  const json scaling = {{"type", "longrope"},
                        {"long_factor", {1., 1.5, 2, 3, 4, 5, 6, 8}},
                        {"short_factor", {1., 1, 1, 1, 1.1, 1.2, 1.3, 1.5}}};
  const std::vector<float> for_long = {1.0F,           0.2108185F,    0.050000001F,
                                       0.010540925F,   0.0024999999F, 0.00063245557F,
                                       0.00016666666F, 3.9528473e-05F};
  const std::vector<float> for_short = {1.0F,           0.31622776F,   0.1F,
                                        0.031622779F,   0.0090909088F, 0.0026352312F,
                                        0.00076923077F, 0.00021081851F};
  const ModelConfig longer = WithScaling(scaling, {{"original_max_position_embeddings", 64}});
  EXPECT_THAT(FrequenciesOf(longer), Pointwise(FloatEq(), for_long));
  EXPECT_FLOAT_EQ(static_cast<float>(longer.rope_scaling.attention_factor), 1.15470054F);
  const ModelConfig as_trained = WithScaling(scaling, {{"original_max_position_embeddings", 256}});
  EXPECT_THAT(FrequenciesOf(as_trained), Pointwise(FloatEq(), for_short));
  EXPECT_DOUBLE_EQ(as_trained.rope_scaling.attention_factor, 1);
  json newer = scaling;
  newer["original_max_position_embeddings"] = 64;
  EXPECT_THAT(FrequenciesOf(WithScaling(newer)), Pointwise(FloatEq(), for_long));
}

// It changes sequences that are longer than max_position_embeddings, and those are refused.
TEST(RotaryTest, DynamicScalingChangesNothingUpToTheLongestSequence) {
  const ModelConfig config = WithScaling({{"rope_type", "dynamic"}, {"factor", 4}});
  EXPECT_THAT(FrequenciesOf(config),
              Pointwise(FloatEq(), {1.0F, 0.31622776F, 0.1F, 0.031622779F, 0.0099999998F,
                                    0.0031622779F, 0.001F, 0.00031622779F}));
  EXPECT_DOUBLE_EQ(config.rope_scaling.attention_factor, 1);
}

}  // namespace
}  // namespace lamina
