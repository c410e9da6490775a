// Prompts for text between two others, by what the authors of each kind of models say.
#include "text/infill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gguf_models.h"
#include "tests/support/letters_tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace infill_test {

using ::testing::ElementsAre;
using testing::LettersTokenizer;

struct Model {
  std::vector<std::string> special;  // tokens 26, 27, ...
  std::vector<TokenId> prompt;       // of "ab" before and "cd" behind
};

TEST(Infill, PromptsAreThoseThatModelsWereTrainedWith) {
  const Model models[] = {
      {{"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"},
       {27, 0, 1, 29, 2, 3, 28}},
      {{"<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>"}, {26, 0, 1, 28, 2, 3, 27}},
      {{"<fim-prefix>", "<fim-middle>", "<fim-suffix>"}, {26, 0, 1, 28, 2, 3, 27}},
      {{"<s>", "▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"}, {27, 0, 1, 29, 2, 3, 28}},
      {{"<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"}, {27, 0, 1, 26, 2, 3, 28}},
      {{"[SUFFIX]", "[PREFIX]"}, {26, 2, 3, 27, 0, 1}},
  };
  for (const Model& model : models) {
    SCOPED_TRACE(model.special.back());
    const auto tokenizer = LettersTokenizer(model.special);
    const std::optional<InfillFormat> format = FindInfillFormat(*tokenizer);
    ASSERT_TRUE(format);
    const std::vector<TokenId> before = *tokenizer->Encode("ab", false);
    const std::vector<TokenId> behind = *EncodeContinuation(*tokenizer, "cd");
    EXPECT_EQ(format->Join(before, behind), model.prompt);
  }
}

TEST(Infill, EndsWhereModelsSayThatItDoes) {
  EXPECT_THAT(FindInfillFormat(*LettersTokenizer({"▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"}))->ends,
              ElementsAre(29));
  EXPECT_THAT(
      FindInfillFormat(*LettersTokenizer({"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                                          "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}))
          ->ends,
      ElementsAre(29, 31));
}

TEST(Infill, NeedsAllOfItsTokens) {
  EXPECT_FALSE(FindInfillFormat(*LettersTokenizer({})));
  EXPECT_FALSE(FindInfillFormat(*LettersTokenizer({"<|fim_prefix|>", "<|fim_suffix|>"})));
  EXPECT_FALSE(FindInfillFormat(*LettersTokenizer({"<fim_prefix>", "<|fim_suffix|>", "<MID>"})));
  EXPECT_FALSE(FindInfillFormat(**LoadTokenizer(testing::TinyStoriesDir())));
}

// The tokenizer puts a space in front of texts, and none belongs between these two.
TEST(Infill, WhatFollowsHasNoSpaceInFront) {
  const auto tokenizer = LoadTokenizer(testing::TinyStoriesDir());
  ASSERT_TRUE(tokenizer.ok());
  const Tokenizer& stories = **tokenizer;
  for (const std::string before : {"Once upon a ti", "The ☃ an", "x"}) {
    for (const std::string behind : {"me there was", " time", "", "☺", "d the é", "\n\n  end"}) {
      std::vector<TokenId> tokens = *stories.Encode(before, false);
      const std::vector<TokenId> more = *EncodeContinuation(stories, behind);
      tokens.insert(tokens.end(), more.begin(), more.end());
      EXPECT_EQ(stories.Decode(tokens, false), before + behind);
    }
  }
  EXPECT_NE(*EncodeContinuation(stories, "time"), *stories.Encode("time", false));
}

TEST(Infill, GgufFilesNameTheTokens) {
  const TemporaryFolder folder;
  const std::string path = folder / "m.gguf";
  testing::GgufWriter keys = testing::TinyStoriesKeys();
  WriteFile(path, keys.File());
  const auto tokenizer = LoadTokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_FALSE(LoadInfillFormat(path, **tokenizer).value());
  keys.AddUint32("tokenizer.ggml.fim_pre_token_id", 300);
  keys.AddUint32("tokenizer.ggml.suffix_token_id", 301);
  WriteFile(path, keys.File());
  EXPECT_FALSE(LoadInfillFormat(path, **tokenizer).value()) << "one is missing";
  keys.AddUint32("tokenizer.ggml.fim_mid_token_id", 302);
  WriteFile(path, keys.File());
  const auto format = LoadInfillFormat(path, **tokenizer);
  ASSERT_TRUE(format.ok() && *format) << format.status();
  const std::vector<TokenId> before = {5}, behind = {6};
  EXPECT_THAT((*format)->Join(before, behind), ElementsAre(300, 5, 301, 6, 302));
  keys.AddUint32("tokenizer.ggml.fim_suf_token_id", 1u << 20);
  WriteFile(path, keys.File());
  const auto beyond = LoadInfillFormat(path, **tokenizer);
  EXPECT_EQ(beyond.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(beyond.status().message(), ::testing::HasSubstr("fim_suf_token_id"));
}

}  // namespace infill_test
}  // namespace lamina
