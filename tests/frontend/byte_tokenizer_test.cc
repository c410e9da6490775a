#include "frontend/text/byte_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig Model(int64_t vocab_size) {
  ModelConfig model;
  model.vocab_size = vocab_size;
  model.bos_token = 1;
  model.eos_tokens = {2};
  return model;
}

TEST(ByteTokenizer, EveryByteIsAToken) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeByteTokenizer(Model(32000));
  EXPECT_THAT(tokenizer->Encode("aB\n", /*add_special_tokens=*/true).value(), ElementsAre(1, 3 + 'a', 3 + 'B', 3 + '\n'));
  EXPECT_THAT(tokenizer->Encode("a", /*add_special_tokens=*/false).value(), ElementsAre(3 + 'a'));
  EXPECT_EQ(tokenizer->MinTokens("four"), 4);
  const std::string text = "naïve 日本";
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, true).value(), /*skip_special=*/true), text);
}

TEST(ByteTokenizer, CharactersComeWhole) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeByteTokenizer(Model(32000));
  DecodeState state;
  std::string text;
  tokenizer->Append(state, 3 + 0xc3, true, text);
  EXPECT_EQ(text, "");
  tokenizer->Append(state, 3 + 0xaf, true, text);
  EXPECT_EQ(text, "ï");
}

TEST(ByteTokenizer, TokensThatAreNoByteReadAsAQuestionMark) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeByteTokenizer(Model(32000));
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{0, 3 + 'x', 31999}, true), "?x?");
}

TEST(ByteTokenizer, ASmallVocabularyIsRefused) {
  EXPECT_TRUE(MakeByteTokenizer(Model(259)).ok());
  EXPECT_THAT(MakeByteTokenizer(Model(258)).status().message(), HasSubstr("258 tokens"));
}

}  // namespace
}  // namespace lamina
