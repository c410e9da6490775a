#include "text/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "text/bpe_encoder.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;

// "[token]text[token]", and how many tokens were found.
std::string Divided(const AddedTokenFinder& finder, const std::string& text) {
  std::string out;
  const Status status = finder.Divide(
      text, TokenizerTime(text.size()),
      [&](std::string_view piece, std::optional<TokenId> id) -> Status {
        out += id ? "[" + std::string(piece) + "=" + std::to_string(*id) + "]" : std::string(piece);
        return OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

AddedToken WithId(TokenId id) {
  AddedToken token;
  token.id = id;
  return token;
}

TEST(AddedTokens, TheLeftmostAndLongestIsFound) {
  AddedTokenFinder finder;
  EXPECT_EQ(Divided(finder, "ab"), "ab");
  finder.Add(WithId(1), "ab");
  finder.Add(WithId(2), "abc");
  finder.Add(WithId(3), "bcd");
  finder.Add(WithId(4), "");
  EXPECT_EQ(Divided(finder, "xabcdabxbcd"), "x[abc=2]d[ab=1]x[bcd=3]");
  EXPECT_EQ(Divided(finder, ""), "");
}

// Many places where a long token nearly is, and many where one takes all the spaces behind it.
TEST(AddedTokens, WorkIsBoundedByTheBudget) {
  AddedTokenFinder nearly;
  nearly.Add(WithId(1), std::string(1000, 'a') + "b");
  AddedTokenFinder spaces;
  AddedToken strips = WithId(2);
  strips.rstrip = true;
  spaces.Add(strips, " ");
  const auto visit = [](std::string_view, std::optional<TokenId>) { return OkStatus(); };
  for (const auto& [finder, text] : {std::pair(&nearly, std::string(1'000'000, 'a')),
                                     std::pair(&spaces, std::string(1'000'000, ' '))}) {
    const TimePoint start = Clock::now();
    EXPECT_EQ(
        finder->Divide(text, TimeBudget(std::chrono::milliseconds(10), "too long"), visit).code(),
        StatusCode::kOutOfSpace);
    EXPECT_LT(SecondsSince(start), 10);
  }
}

TEST(AddedTokens, AFailedVisitEndsIt) {
  AddedTokenFinder finder;
  finder.Add(WithId(1), "a");
  int visits = 0;
  const Status status =
      finder.Divide("aaa", TokenizerTime(3), [&](std::string_view, std::optional<TokenId>) {
        return ++visits == 2 ? Unimplemented("stop") : OkStatus();
      });
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(visits, 2);
}

SentencePieceModel ModelOf(
    const std::vector<std::pair<std::string, SentencePieceModel::Type>>& pieces) {
  SentencePieceModel model;
  model.pieces.push_back({"<unk>", 0, SentencePieceModel::Type::kUnknown});
  for (const auto& [text, type] : pieces)
    model.pieces.push_back({text, -static_cast<float>(model.pieces.size()), type});
  model.add_dummy_prefix = false;
  return model;
}

// Pieces that a user defined are found whatever their number.
TEST(BpeEncoder, VeryManyUserDefinedPiecesTakeNoLonger) {
  using Type = SentencePieceModel::Type;
  std::vector<std::pair<std::string, Type>> pieces = {
      {"a", Type::kNormal}, {"ab", Type::kUserDefined}, {"abb", Type::kUserDefined}};
  for (int i = 0; i < 60'000; ++i) pieces.emplace_back("a" + std::to_string(i), Type::kUserDefined);
  const SentencePieceModel model = ModelOf(pieces);
  const BpeEncoder encoder(model);
  std::vector<TokenId> ids;
  ASSERT_TRUE(encoder.Encode("aababba7", TokenizerTime(8), ids).ok());
  EXPECT_THAT(ids, ElementsAre(1, 2, 3, 11));
  const TimePoint start = Clock::now();
  EXPECT_TRUE(encoder.Encode(std::string(300'000, 'a'), TokenizerTime(300'000), ids).ok());
  EXPECT_LT(SecondsSince(start), 15);
}

TEST(BpeEncoder, WorkIsBoundedByTheBudget) {
  const SentencePieceModel model = ModelOf(
      {{"a", SentencePieceModel::Type::kNormal}, {"aa", SentencePieceModel::Type::kNormal}});
  std::vector<TokenId> ids;
  EXPECT_EQ(
      BpeEncoder(model)
          .Encode(std::string(100'000, 'a'), TimeBudget(std::chrono::seconds(0), "too long"), ids)
          .code(),
      StatusCode::kOutOfSpace);
}

}  // namespace
}  // namespace lamina
