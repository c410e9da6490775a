#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/clock.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/paths.h"
#include "text/sentencepiece_tokenizer.h"

namespace lamina {
namespace tokenizer_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> TinyStories() {
  auto tokenizer = LoadSentencePieceTokenizer(testing::TinyStoriesDir());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// A folder with a copy of the shipped tokenizer.model and the given other files.
class CheckpointFolder {
 public:
  CheckpointFolder()
      : dir_(::testing::TempDir() + "/lamina_tokenizer_" + std::to_string(std::random_device{}())) {
    std::filesystem::create_directories(dir_);
  }
  ~CheckpointFolder() { std::filesystem::remove_all(dir_); }
  CheckpointFolder& CopyModel() {
    std::filesystem::copy_file(testing::TinyStoriesDir() + "/tokenizer.model",
                               dir_ + "/tokenizer.model");
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

std::string FromBase64(const std::string& text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = (bits << 6) | static_cast<uint32_t>(kDigits.find(c));
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits);
  }
  return bytes;
}

TEST(Tokenizer, GoldenPromptsEncode) {
  const auto tokenizer = TinyStories();
  const auto prompts = testing::GoldenPrompts();
  ASSERT_EQ(prompts.size(), 19u);
  for (const auto& golden : prompts)
    EXPECT_EQ(tokenizer->Encode(golden.prompt, true).value(), golden.prompt_ids) << golden.prompt;
}

TEST(Tokenizer, GoldenPromptsDecode) {
  const auto tokenizer = TinyStories();
  for (const auto& golden : testing::GoldenPrompts())
    EXPECT_EQ(tokenizer->Decode(golden.prompt_ids, true), golden.prompt);
}

// tokenizer_golden.json was written with the SentencePiece library.
TEST(Tokenizer, AgreesWithSentencePiece) {
  std::ifstream file(SourcePath("/tests/text/tokenizer_golden.json"));
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.size(), 3u);
  for (const auto& model : golden) {
    SCOPED_TRACE(model["name"].get<std::string>());
    CheckpointFolder folder;
    if (model["model"].get<std::string>().empty()) {
      folder.CopyModel();
    } else {
      folder.Write("tokenizer.model", FromBase64(model["model"]));
    }
    auto tokenizer = LoadTokenizer(folder.dir());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->vocab_size(), model["size"].get<int64_t>());
    for (const auto& [text, ids] :
         model["encode"].get<std::vector<std::pair<std::string, std::vector<TokenId>>>>()) {
      EXPECT_EQ((*tokenizer)->Encode(text, false).value(), ids) << text;
    }
    for (const auto& [ids, text] :
         model["decode"].get<std::vector<std::pair<std::vector<TokenId>, std::string>>>()) {
      EXPECT_EQ((*tokenizer)->Decode(ids, true), text) << ::testing::PrintToString(ids);
    }
  }
}

TEST(Tokenizer, LongTextsTakeNLogNTime) {
  const auto tokenizer = TinyStories();
  std::string text;
  while (text.size() < 2'000'000) text += "Once upon a time ";
  const TimePoint start = Clock::now();
  EXPECT_GT(tokenizer->Encode(text, true).value().size(), 400'000u);
  EXPECT_GT(tokenizer->Encode(std::string(1'000'000, 'a'), true).value().size(), 1000u);
  EXPECT_LT(SecondsSince(start), 60);  // a quadratic way would take hours
}

TEST(Tokenizer, SpecialTokensInTextBecomeTheirIds) {
  const auto tokenizer = TinyStories();
  EXPECT_EQ(*tokenizer->bos(), 1);
  EXPECT_EQ(*tokenizer->eos(), 2);
  const std::vector<TokenId> ids = tokenizer->Encode("<s>a</s>", false).value();
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(tokenizer->Encode("</s></s>", false).value(), (std::vector<TokenId>{2, 2}));
  EXPECT_EQ(tokenizer->Encode("</", false).value(), tokenizer->Encode("</", false).value());
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("</s", false).value(), true), "</s");
}

TEST(Tokenizer, MinTokensIsALowerBound) {
  const auto tokenizer = TinyStories();
  for (const auto& golden : testing::GoldenPrompts()) {
    EXPECT_LE(tokenizer->MinTokens(golden.prompt), static_cast<int64_t>(golden.prompt_ids.size()));
    EXPECT_LE(tokenizer->MinTokens(golden.text),
              static_cast<int64_t>(golden.continuation_ids.size()));
  }
  EXPECT_GT(tokenizer->MinTokens(std::string(1'000'000, ' ')), 10'000);
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
  EXPECT_THAT(tokenizer->Encode("", true).value(), ElementsAre(1));
  EXPECT_EQ(tokenizer->Encode("", false).value().size(), 0u);
  const std::string with_zero("a\0b", 3);
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(with_zero, true).value(), true), with_zero);
}

TEST(Tokenizer, AddedTokensAreFoundInText) {
  CheckpointFolder folder;
  folder.CopyModel().Write(
      "tokenizer_config.json",
      R"({"bos_token": {"content": "<s>"}, "eos_token": "<|end|>", "add_bos_token": false,
      "added_tokens_decoder": {"1": {"content": "<s>"}, "1024": {"content": "<|end|>"}, "1025": {"content": "<|end|>!"}}})");
  auto tokenizer = LoadTokenizer(folder.dir());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->eos(), 1024);
  EXPECT_EQ((*tokenizer)->vocab_size(), 1026);
  // The longest one that fits.
  EXPECT_THAT((*tokenizer)->Encode("<|end|><|end|>!<s>", true).value(), ElementsAre(1024, 1025, 1));
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{488, 1024}, false), "Once<|end|>");
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{488, 1024}, true), "Once");
}

// Each place of the text was compared with every one of them.
TEST(Tokenizer, VeryManyAddedTokensTakeNoLonger) {
  CheckpointFolder folder;
  nlohmann::json added;
  for (int i = 0; i < 60'000; ++i) added["<" + std::to_string(i) + ">"] = 1024;
  folder.CopyModel().Write("added_tokens.json", added.dump());
  const TimePoint start = Clock::now();
  const auto tokenizer = LoadTokenizer(folder.dir());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->Encode(std::string(300'000, '<'), true).ok());
  EXPECT_LT(SecondsSince(start), 15);
  added = {{std::string(30'000, 'a'), 1024}};
  folder.Write("added_tokens.json", added.dump());
  EXPECT_THAT(LoadTokenizer(folder.dir()).status().message(),
              HasSubstr("expected at most 1024 bytes"));
}

TEST(Tokenizer, AddedTokensThatCannotBeReadAreNamedWithTheirFile) {
  for (const char* added : {R"({"<far>": 16000000})", R"({"<far>": -1})", R"({"<far>": "1024"})"}) {
    CheckpointFolder folder;
    folder.CopyModel().Write("added_tokens.json", added);
    const Status status = LoadTokenizer(folder.dir()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << added;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("added_tokens.json: the added token \"<far>\""),
                                        HasSubstr("no integer from 0 to 69631")));
  }
  CheckpointFolder broken;
  broken.CopyModel().Write("added_tokens.json", "{");
  EXPECT_THAT(LoadTokenizer(broken.dir()).status().message(), HasSubstr("added_tokens.json"));
  for (const char* added : {R"(7)", R"({"x": "<s>"})", R"({"1024x": "<s>"})", R"({"1024": 7})",
                            R"({"1024": {"contents": "<s>"}})"}) {
    CheckpointFolder folder;
    folder.CopyModel().Write("tokenizer_config.json",
                             std::string(R"({"added_tokens_decoder": )") + added + "}");
    const Status status = LoadTokenizer(folder.dir()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << added;
    EXPECT_THAT(status.message(), HasSubstr("tokenizer_config.json: added_tokens_decoder: "));
  }
}

TEST(Tokenizer, LegacyDecidesAboutTheSpaceBehindASpecialToken) {
  CheckpointFolder legacy;
  CheckpointFolder modern;
  legacy.CopyModel().Write("tokenizer_config.json", R"({"bos_token": "<s>", "legacy": true})");
  modern.CopyModel().Write("tokenizer_config.json", R"({"bos_token": "<s>", "legacy": false})");
  const auto with_space =
      *LoadTokenizer(legacy.dir()).value()->Encode("<s>the", false).value().rbegin();
  const std::vector<TokenId> without =
      LoadTokenizer(modern.dir()).value()->Encode("<s>the", false).value();
  EXPECT_EQ(LoadTokenizer(legacy.dir()).value()->TokenBytes(with_space), " the");
  std::string text;
  for (size_t i = 1; i < without.size(); ++i)
    text += LoadTokenizer(modern.dir()).value()->TokenBytes(without[i]);
  EXPECT_EQ(text, "the");
}

TEST(Tokenizer, MissingFilesAreNamed) {
  CheckpointFolder empty;
  EXPECT_EQ(LoadTokenizer(empty.dir()).status().code(), StatusCode::kNotFound);
  CheckpointFolder bpe;
  bpe.Write("tokenizer.json", "{}");
  const Status status = LoadTokenizer(bpe.dir()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.json: model is missing"));
}

// A large one takes long to read, so that its place is all that is looked at.
TEST(CheckTokenizer, SaysWhetherThereIsOneWithoutReadingIt) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    CheckpointFolder folder;
    folder.Write(name, "this is no tokenizer");
    EXPECT_TRUE(CheckTokenizer(folder.dir()).ok()) << name;
    EXPECT_FALSE(LoadTokenizer(folder.dir()).ok()) << name;
  }
  EXPECT_TRUE(CheckTokenizer(testing::TinyStoriesDir()).ok());
  CheckpointFolder empty, parts, dangling;
  parts.Write("vocab.json", "{}").Write("merges.txt", "");
  std::filesystem::create_symlink(dangling.dir() + "/nowhere", dangling.dir() + "/tokenizer.json");
  for (const CheckpointFolder* folder : {&empty, &parts, &dangling}) {
    const Status status = CheckTokenizer(folder->dir());
    EXPECT_EQ(status.message(), LoadTokenizer(folder->dir()).status().message());
    EXPECT_THAT(status.message(), HasSubstr("tokenizer.json"));
    EXPECT_EQ(status.code(), folder == &parts ? StatusCode::kUnimplemented : StatusCode::kNotFound);
  }
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

}  // namespace tokenizer_test
}  // namespace lamina
