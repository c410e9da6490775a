#include "frontend/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "tests/frontend/golden_prompts.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> TinyStories() {
  auto tokenizer = LoadTokenizer(testing::TinyStoriesDir());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// A folder with a copy of the shipped tokenizer.model and the given other files.
class CheckpointFolder {
 public:
  CheckpointFolder() : dir_(::testing::TempDir() + "/lamina_tokenizer_" + std::to_string(std::random_device{}())) { std::filesystem::create_directories(dir_); }
  ~CheckpointFolder() { std::filesystem::remove_all(dir_); }
  CheckpointFolder& CopyModel() {
    std::filesystem::copy_file(testing::TinyStoriesDir() + "/tokenizer.model", dir_ + "/tokenizer.model");
    return *this;
  }
  CheckpointFolder& Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name) << text;
    return *this;
  }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

TEST(Tokenizer, GoldenPromptsEncode) {
  const auto tokenizer = TinyStories();
  const auto prompts = testing::GoldenPrompts();
  ASSERT_EQ(prompts.size(), 19u);
  for (const auto& golden : prompts) EXPECT_EQ(tokenizer->Encode(golden.prompt, true), golden.prompt_ids) << golden.prompt;
}

TEST(Tokenizer, GoldenPromptsDecode) {
  const auto tokenizer = TinyStories();
  for (const auto& golden : testing::GoldenPrompts()) EXPECT_EQ(tokenizer->Decode(golden.prompt_ids, true), golden.prompt);
}

// Decoding is done piece by piece here; the library decodes whole sequences. Both must agree on everything.
TEST(Tokenizer, DecodesAsSentencePieceDoes) {
  const auto tokenizer = TinyStories();
  sentencepiece::SentencePieceProcessor reference;
  ASSERT_TRUE(reference.Load(testing::TinyStoriesDir() + "/tokenizer.model").ok());
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    const bool many_bytes = round % 3 == 0;  // ids 3 to 258 are single bytes
    std::vector<int> ids(random() % 12);
    for (int& id : ids) id = static_cast<int>(random() % (many_bytes && random() % 2 ? 259 : 1024));
    std::string expected;
    ASSERT_TRUE(reference.Decode(ids, &expected).ok());
    EXPECT_EQ(tokenizer->Decode(ids, true), expected) << ::testing::PrintToString(ids);
  }
}

TEST(Tokenizer, SpecialTokensInTextBecomeTheirIds) {
  const auto tokenizer = TinyStories();
  EXPECT_EQ(*tokenizer->bos(), 1);
  EXPECT_EQ(*tokenizer->eos(), 2);
  const std::vector<TokenId> ids = tokenizer->Encode("<s>a</s>", false);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(tokenizer->Encode("</s></s>", false), (std::vector<TokenId>{2, 2}));
  EXPECT_EQ(tokenizer->Encode("</", false), tokenizer->Encode("</", false));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("</s", false), true), "</s");
}

TEST(Tokenizer, SpecialTokensAreSkippedOrShown) {
  const auto tokenizer = TinyStories();
  const std::vector<TokenId> ids = {1, 488, 2};
  EXPECT_EQ(tokenizer->Decode(ids, true), "Once");
  EXPECT_EQ(tokenizer->Decode(ids, false), "<s> Once</s>");
}

TEST(Tokenizer, IdsOutsideTheVocabularyAddNothing) {
  const auto tokenizer = TinyStories();
  EXPECT_EQ(tokenizer->vocab_size(), 1024);
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{-1, 488, 1024, 5'000'000}, true), "Once");
  EXPECT_EQ(tokenizer->IdToPiece(-1), "");
  EXPECT_EQ(tokenizer->IdToPiece(1024), "");
  EXPECT_EQ(tokenizer->TokenBytes(1024), "");
  EXPECT_EQ(tokenizer->TokenBytes(13), "\n");
  EXPECT_EQ(tokenizer->IdToPiece(13), "<0x0A>");
}

TEST(Tokenizer, ZeroBytesAndEmptyTextAreText) {
  const auto tokenizer = TinyStories();
  EXPECT_THAT(tokenizer->Encode("", true), ElementsAre(1));
  EXPECT_EQ(tokenizer->Encode("", false).size(), 0u);
  const std::string with_zero("a\0b", 3);
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(with_zero, true), true), with_zero);
}

TEST(Tokenizer, AddedTokensAreFoundInText) {
  CheckpointFolder folder;
  folder.CopyModel().Write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "<|end|>", "add_bos_token": false,
      "added_tokens_decoder": {"1": {"content": "<s>"}, "1024": {"content": "<|end|>"}, "1025": {"content": "<|end|>!"}}})");
  auto tokenizer = LoadTokenizer(folder.dir());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->eos(), 1024);
  EXPECT_EQ((*tokenizer)->vocab_size(), 1026);
  EXPECT_THAT((*tokenizer)->Encode("<|end|><|end|>!<s>", true), ElementsAre(1024, 1025, 1));  // the longest one that fits
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{488, 1024}, false), "Once<|end|>");
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{488, 1024}, true), "Once");
}

TEST(Tokenizer, LegacyDecidesAboutTheSpaceBehindASpecialToken) {
  CheckpointFolder legacy;
  CheckpointFolder modern;
  legacy.CopyModel().Write("tokenizer_config.json", R"({"bos_token": "<s>", "legacy": true})");
  modern.CopyModel().Write("tokenizer_config.json", R"({"bos_token": "<s>", "legacy": false})");
  const auto with_space = *LoadTokenizer(legacy.dir()).value()->Encode("<s>the", false).rbegin();
  const std::vector<TokenId> without = LoadTokenizer(modern.dir()).value()->Encode("<s>the", false);
  EXPECT_EQ(LoadTokenizer(legacy.dir()).value()->TokenBytes(with_space), " the");
  std::string text;
  for (size_t i = 1; i < without.size(); ++i) text += LoadTokenizer(modern.dir()).value()->TokenBytes(without[i]);
  EXPECT_EQ(text, "the");
}

TEST(Tokenizer, MissingFilesAreNamed) {
  CheckpointFolder empty;
  EXPECT_EQ(LoadTokenizer(empty.dir()).status().code(), StatusCode::kNotFound);
  CheckpointFolder bpe;
  bpe.Write("tokenizer.json", "{}");
  const Status status = LoadTokenizer(bpe.dir()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.json"));
}

TEST(Tokenizer, BrokenFilesAreNamed) {
  CheckpointFolder broken;
  broken.Write("tokenizer.model", "this is no model");
  const Status status = LoadTokenizer(broken.dir()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.model"));
  CheckpointFolder config;
  config.CopyModel().Write("tokenizer_config.json", "{");
  EXPECT_THAT(LoadTokenizer(config.dir()).status().message(), HasSubstr("tokenizer_config.json"));
}

}  // namespace
}  // namespace lamina
