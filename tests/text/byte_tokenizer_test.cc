#include "text/byte_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TokenId kBos = 1, kEos = 2;

TEST(ByteTokenizer, EveryByteIsAToken) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeByteTokenizer(32000, kBos, kEos);
  EXPECT_THAT(tokenizer->Encode("aB\n", /*add_special_tokens=*/true).value(),
              ElementsAre(1, 3 + 'a', 3 + 'B', 3 + '\n'));
  EXPECT_THAT(tokenizer->Encode("a", /*add_special_tokens=*/false).value(), ElementsAre(3 + 'a'));
  EXPECT_EQ(tokenizer->MinTokens("four"), 4);
  const std::string text = "naïve 日本";
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, true).value(), /*skip_special=*/true), text);
}

TEST(ByteTokenizer, CharactersComeWhole) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeByteTokenizer(32000, kBos, kEos);
  DecodeState state;
  std::string text;
  tokenizer->Append(state, 3 + 0xc3, true, text);
  EXPECT_EQ(text, "");
  tokenizer->Append(state, 3 + 0xaf, true, text);
  EXPECT_EQ(text, "ï");
}

TEST(ByteTokenizer, TokensThatAreNoByteReadAsAQuestionMark) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeByteTokenizer(32000, kBos, kEos);
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{0, 3 + 'x', 31999}, true), "?x?");
}

TEST(ByteTokenizer, ASmallVocabularyIsRefused) {
  EXPECT_TRUE(MakeByteTokenizer(259, kBos, kEos).ok());
  EXPECT_THAT(MakeByteTokenizer(258, kBos, kEos).status().message(), HasSubstr("258 tokens"));
}

}  // namespace
}  // namespace lamina
