// Tokenizers in GGUF files against the tokenizers library (tests/fixtures/gguf/words.json, made by
// make_gguf.py there), and against the SentencePiece model that such a file was made of.
#include "text/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/gguf_models.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::AllOf;
using testing::GgufFixture;
using testing::GgufWriter;
using ::testing::HasSubstr;

TEST(GgufTokenizerTest, WordsAreThoseOfTheTokenizersLibrary) {
  std::ifstream file(GgufFixture("words.json"));
  const auto golden = nlohmann::json::parse(file);
  EXPECT_EQ(golden.size(), 7u);
  for (const auto& [name, answers] : golden.items()) {
    const auto tokenizer = LoadTokenizer(GgufFixture("words-" + name + ".gguf"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const auto& answer : answers) {
      const auto text = answer["text"].get<std::string>();
      const auto ids = answer["ids"].get<std::vector<TokenId>>();
      const auto encoded = (*tokenizer)->Encode(text, true);
      ASSERT_TRUE(encoded.ok()) << encoded.status();
      EXPECT_EQ(*encoded, ids) << name << ": " << text;
      EXPECT_EQ((*tokenizer)->Decode(ids, true), answer["decoded"]) << name << ": " << text;
    }
    const auto last = static_cast<TokenId>((*tokenizer)->vocab_size());
    EXPECT_EQ((*tokenizer)->TokenBytes(last), "") << "a made-up token";
    EXPECT_EQ((*tokenizer)->IdToPiece(*(*tokenizer)->bos()), "<|begin|>");
    EXPECT_EQ((*tokenizer)->IdToPiece(*(*tokenizer)->eos()), "<|end|>");
  }
}

TEST(GgufTokenizerTest, PiecesAreThoseOfTheSentencePieceModel) {
  const TemporaryFolder folder;
  const std::string path = folder / "m.gguf";
  WriteFile(path, testing::TinyStoriesKeys().File());
  const auto original = LoadTokenizer(testing::TinyStoriesDir());
  const auto tokenizer = LoadTokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 1024);
  EXPECT_EQ((*tokenizer)->bos(), 1);
  EXPECT_EQ((*tokenizer)->eos(), 2);
  for (const testing::GoldenPrompt& golden : testing::GoldenPrompts()) {
    EXPECT_EQ(*(*tokenizer)->Encode(golden.prompt, true), golden.prompt_ids);
    EXPECT_EQ((*tokenizer)->Decode(golden.continuation_ids, true),
              (*original)->Decode(golden.continuation_ids, true));
  }
  for (const char* text : {"", " ", "  two  spaces ", "h\xc3\xa9llo \xe2\x98\x83", "<s>a</s> b"})
    EXPECT_EQ(*(*tokenizer)->Encode(text, true), *(*original)->Encode(text, true)) << text;
}

TEST(GgufTokenizerTest, ChatTemplatesAreRead) {
  const TemporaryFolder folder;
  const std::string path = folder / "m.gguf";
  GgufWriter writer;
  writer.AddStrings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>"});
  writer.AddString("tokenizer.ggml.model", "llama");
  WriteFile(path, writer.File());
  EXPECT_EQ(ChatTemplate::Load(path).status().code(), StatusCode::kNotFound);
  writer.AddString(
      "tokenizer.chat_template",
      "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
  WriteFile(path, writer.File());
  const auto chat = ChatTemplate::Load(path);
  ASSERT_TRUE(chat.ok()) << chat.status();
  ChatInput input;
  input.messages.push_back({"user", "hi"});
  EXPECT_EQ(*(*chat)->Render(input), "<s>hi</s>");
  GgufWriter broken;
  broken.AddStrings("tokenizer.ggml.tokens", {"a"});
  broken.AddString("tokenizer.chat_template", "{% for %}");
  WriteFile(path, broken.File());
  EXPECT_THAT(ChatTemplate::Load(path).status().message(),
              HasSubstr("m.gguf: tokenizer.chat_template"));
}

class GgufTokenizerErrorTest : public ::testing::Test {
 protected:
  void ExpectError(StatusCode code, const std::string& says) {
    const std::string path = folder_ / "m.gguf";
    WriteFile(path, writer_.File());
    const Status status = LoadTokenizer(path).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("m.gguf"), HasSubstr(says)));
  }
  // Of the file of ExpectError: its tokenizer is refused without being made.
  void ExpectCheckSaysTheSame() {
    const std::string path = folder_ / "m.gguf";
    EXPECT_FALSE(CheckTokenizer(path).ok());
    EXPECT_EQ(CheckTokenizer(path).message(), LoadTokenizer(path).status().message());
  }
  void AddSentencePiece(const std::vector<std::string>& tokens, const std::vector<float>& scores,
                        const std::vector<int32_t>& types) {
    writer_.AddString("tokenizer.ggml.model", "llama");
    writer_.AddStrings("tokenizer.ggml.tokens", tokens);
    writer_.AddFloats("tokenizer.ggml.scores", scores);
    writer_.AddInts("tokenizer.ggml.token_type", types);
  }
  void AddBytePairs(const std::string& pre, const std::vector<std::string>& tokens,
                    const std::vector<std::string>& merges) {
    writer_.AddString("tokenizer.ggml.model", "gpt2");
    writer_.AddString("tokenizer.ggml.pre", pre);
    writer_.AddStrings("tokenizer.ggml.tokens", tokens);
    writer_.AddStrings("tokenizer.ggml.merges", merges);
  }

  TemporaryFolder folder_;
  GgufWriter writer_;
};

TEST_F(GgufTokenizerErrorTest, NoTokenizer) {
  ExpectError(StatusCode::kNotFound, "there is no tokenizer");
  ExpectCheckSaysTheSame();
}

TEST_F(GgufTokenizerErrorTest, AnotherKind) {
  writer_.AddString("tokenizer.ggml.model", "bert");
  writer_.AddStrings("tokenizer.ggml.tokens", {"a"});
  ExpectError(StatusCode::kUnimplemented, "tokenizer.ggml.model is \"bert\"");
  ExpectCheckSaysTheSame();
}

TEST_F(GgufTokenizerErrorTest, AnUnknownPreTokenizer) {
  AddBytePairs("bailingmoe", {"a"}, {});
  ExpectError(StatusCode::kUnimplemented,
              "tokenizer.ggml.pre is \"bailingmoe\", expected one of gpt-2, llama-bpe");
  ExpectCheckSaysTheSame();
}

TEST_F(GgufTokenizerErrorTest, AMergeOfWhatIsNoToken) {
  AddBytePairs("gpt-2", {"a", "b"}, {"a b"});
  ExpectError(StatusCode::kInvalidArgument, "merges");
}

TEST_F(GgufTokenizerErrorTest, TokensThatAreThereTwice) {
  AddBytePairs("gpt-2", {"a", "b", "a"}, {});
  ExpectError(StatusCode::kInvalidArgument, "tokenizer.ggml.tokens[2] is there twice");
  EXPECT_TRUE(CheckTokenizer(folder_ / "m.gguf").ok()) << "it looks at no token";
}

TEST_F(GgufTokenizerErrorTest, TokensThatAreNotUtf8) {
  AddBytePairs("gpt-2", {"a", "\xff"}, {});
  ExpectError(StatusCode::kInvalidArgument, "tokenizer.ggml.tokens[1] is not UTF-8");
}

TEST_F(GgufTokenizerErrorTest, PiecesWithoutScores) {
  writer_.AddString("tokenizer.ggml.model", "llama");
  writer_.AddStrings("tokenizer.ggml.tokens", {"<unk>", "a"});
  ExpectError(StatusCode::kInvalidArgument, "tokenizer.ggml.scores, which is missing");
  ExpectCheckSaysTheSame();
}

TEST_F(GgufTokenizerErrorTest, AUnigramModel) {
  AddSentencePiece({"<unk>", "a", "b"}, {0, -1.5f, -2.25f}, {2, 1, 1});
  ExpectError(StatusCode::kUnimplemented, "unigram");
  ExpectCheckSaysTheSame();
}

TEST_F(GgufTokenizerErrorTest, BytesThatAreNotAllThere) {
  AddSentencePiece({"<unk>", "a", "<0x0A>"}, {0, -1, 0}, {2, 1, 6});
  ExpectError(StatusCode::kInvalidArgument, "not all 256 byte pieces");
}

}  // namespace
}  // namespace lamina
