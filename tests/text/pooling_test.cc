#include "text/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/gguf_writer.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace pooling_test {

using ::testing::HasSubstr;

class Pooling : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "1_Pooling");
    WriteModules(R"("sentence_transformers.models.Pooling")");
  }
  void WriteModules(const std::string& type) const {
    WriteFile(folder_ / "modules.json",
              R"([{"idx": 0, "name": "0", "path": "",
                   "type": "sentence_transformers.models.Transformer"},
                  {"idx": 1, "name": "1", "path": "1_Pooling", "type": )" +
                  type + R"(},
                  {"idx": 2, "name": "2", "path": "2_Normalize",
                   "type": "sentence_transformers.models.Normalize"}])");
  }
  Status With(const std::string& pooling) const {
    WriteFile(folder_ / "1_Pooling/config.json", pooling);
    return CheckPooling(folder_.path());
  }

  const TemporaryFolder folder_;
};

TEST_F(Pooling, LastTokensAreWhatLaminaComputes) {
  EXPECT_TRUE(With(R"({"word_embedding_dimension": 8, "pooling_mode_cls_token": false,
                       "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true,
                       "include_prompt": true})")
                  .ok());
  EXPECT_TRUE(With(R"({"pooling_mode": "lasttoken"})").ok());
}

TEST_F(Pooling, OthersAreNamed) {
  for (const auto& [config, reason] :
       {std::pair(
            R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false})",
            "1_Pooling/config.json: the model's vectors are made by pooling_mode_mean_tokens"),
        std::pair(R"({"pooling_mode_lasttoken": true, "pooling_mode_cls_token": true})",
                  "pooling_mode_cls_token"),
        std::pair(R"({"pooling_mode": "mean"})", "pooling_mode \"mean\"")}) {
    const Status status = With(config);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << config;
    EXPECT_THAT(status.message(), HasSubstr(reason));
  }
  WriteModules(R"("sentence_transformers.models.Dense")");
  const Status dense = With(R"({})");
  EXPECT_EQ(dense.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(dense.message(), HasSubstr("models.Dense"));
}

TEST_F(Pooling, WhatCannotBeReadIsNoLastToken) {
  EXPECT_THAT(CheckPooling(folder_.path()).message(), HasSubstr("pull the model again"));
  EXPECT_FALSE(With("{").ok());
  for (const char* modules : {"", "{}", "[1]", R"([{"type": "x.Pooling"}])"}) {
    WriteFile(folder_ / "modules.json", modules);
    EXPECT_FALSE(With(R"({"pooling_mode": "lasttoken"})").ok()) << modules;
  }
}

TEST_F(Pooling, ModelsThatSayNothingHaveVectors) {
  EXPECT_TRUE(CheckPooling(TinyStoriesDir()).ok());
}

TEST_F(Pooling, GgufFilesSayItByAKey) {
  const auto with = [&](const auto& add) {
    GgufWriter writer;
    writer.AddString("general.architecture", "qwen3");
    add(writer);
    WriteFile(folder_ / "m.gguf", writer.File());
    return CheckPooling(folder_ / "m.gguf");
  };
  EXPECT_TRUE(with([](GgufWriter&) {}).ok());
  for (const uint32_t type : {0u, 3u})
    EXPECT_TRUE(with([&](GgufWriter& w) { w.AddUint32("qwen3.pooling_type", type); }).ok());
  for (const uint32_t type : {1u, 2u, 4u, 77u}) {
    const Status status = with([&](GgufWriter& w) { w.AddUint32("qwen3.pooling_type", type); });
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr("qwen3.pooling_type " + std::to_string(type)));
  }
  EXPECT_FALSE(with([](GgufWriter& w) { w.AddString("qwen3.pooling_type", "mean"); }).ok());
}

}  // namespace pooling_test
}  // namespace lamina::testing
