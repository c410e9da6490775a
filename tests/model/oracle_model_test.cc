// The oracle against PyTorch: models/tiny-stories/golden*.json.
#include "tests/support/oracle_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace {

const std::string kModelDir = SourcePath("/models/tiny-stories");

void ExpectReproduces(const std::string& golden_file, bool bf16_kv) {
  const OracleModel model = OracleModel::Load(kModelDir);
  std::ifstream file(kModelDir + "/" + golden_file);
  const auto golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden["prompts"].size(), 19u);
  for (const auto& prompt : golden["prompts"]) {
    const auto ids = prompt["prompt_ids"].get<std::vector<int>>();
    const auto expected = prompt["continuation_ids"].get<std::vector<int>>();
    const std::vector<OracleModel::Step> steps = model.Greedy(ids, 96, bf16_kv);
    ASSERT_EQ(steps.size(), expected.size()) << prompt["prompt"];
    for (size_t i = 0; i < steps.size(); ++i) {
      ASSERT_EQ(steps[i].token, expected[i]) << prompt["prompt"] << " step " << i;
      EXPECT_NEAR(steps[i].logprob, prompt["steps"][i]["logprob"].get<double>(), 1e-3)
          << prompt["prompt"] << " step " << i;
      EXPECT_NEAR(steps[i].margin, prompt["steps"][i]["margin"].get<double>(), 1e-2)
          << prompt["prompt"] << " step " << i;
    }
  }
}

TEST(OracleModelTest, ReproducesPyTorch) { ExpectReproduces("golden.json", false); }

TEST(OracleModelTest, ReproducesPyTorchWithKeysAndValuesInBfloat16) {
  ExpectReproduces("golden_bf16kv.json", true);
}

TEST(OracleModelTest, NextLogitsAgreeWithGreedy) {
  const OracleModel model = OracleModel::Load(kModelDir);
  std::vector<int> ids = {1, 488, 489, 261, 396};
  for (const OracleModel::Step& step : model.Greedy(ids, 5, true)) {
    EXPECT_DOUBLE_EQ(
        OracleModel::LogSoftmax(model.NextLogits(ids, true))[static_cast<size_t>(step.token)],
        step.logprob);
    ids.push_back(step.token);
  }
  EXPECT_NE(model.NextLogits(ids, true), model.NextLogits(ids, false));
}

TEST(OracleModelTest, EveryPartOfATinyCheckpointMatters) {
  const std::vector<int> ids = {1, 5, 90, 17, 3, 3};
  const auto logits = [&](const TinyCheckpointOptions& options) {
    const TinyCheckpoint checkpoint(options);
    return OracleModel::Load(checkpoint.dir()).NextLogits(ids, false);
  };
  const std::vector<float> plain = logits({});
  EXPECT_EQ(plain.size(), 96u);
  for (const float logit : plain) ASSERT_TRUE(std::isfinite(logit));
  EXPECT_EQ(plain, logits({}));
  EXPECT_NE(plain, logits({.seed = 2}));
  EXPECT_NE(plain, logits({.attention_bias = true}));
  EXPECT_NE(plain, logits({.mlp_bias = true}));
  EXPECT_NE(plain, logits({.tied_head = true}));
  EXPECT_NE(plain, logits({.rope_scaling = R"({"type": "linear", "factor": 4})"}));
  const std::string llama3 =
      R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64})";
  EXPECT_NE(plain, logits({.rope_scaling = llama3}));
}

TEST(OracleModelTest, DtypesOfTheCheckpointDifferOnlyByRounding) {
  const auto logits = [](const char* dtype) {
    const TinyCheckpoint checkpoint({.dtype = dtype});
    return OracleModel::Load(checkpoint.dir()).NextLogits({1, 2, 3}, false);
  };
  const std::vector<float> full = logits("F32");
  const std::vector<float> half = logits("F16");
  ASSERT_EQ(full.size(), half.size());
  for (size_t i = 0; i < full.size(); ++i) EXPECT_NEAR(full[i], half[i], 0.05);
  EXPECT_NE(full, half);
}

}  // namespace
}  // namespace lamina
