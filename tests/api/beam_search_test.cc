#include "api/beam_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;

using Offered = std::vector<std::vector<TokenLogprob>>;
constexpr TokenId kEnd = 9;

std::vector<std::vector<TokenId>> Tokens(const std::vector<BeamSearch::Answer>& answers) {
  std::vector<std::vector<TokenId>> tokens;
  for (const BeamSearch::Answer& answer : answers) tokens.push_back(answer.tokens);
  return tokens;
}

TEST(BeamSearch, KeepsTheBestOfAllBeams) {
  BeamSearch search({.width = 2, .max_new_tokens = 3, .ends = {kEnd}});
  EXPECT_EQ(search.num_offered(), 4);
  search.Advance(Offered{{{1, -1}, {2, -2}, {3, -3}, {4, -4}}});
  ASSERT_EQ(search.beams().size(), 2u);
  search.Advance(Offered{{{5, -5}, {6, -6}}, {{7, -1}, {8, -2}}});
  EXPECT_THAT(search.beams()[0].tokens, ElementsAre(2, 7));
  EXPECT_THAT(search.beams()[1].tokens, ElementsAre(2, 8));
  EXPECT_FLOAT_EQ(static_cast<float>(search.beams()[1].logprob), -4);
  search.Advance(Offered{{{1, -1}, {2, -9}}, {{3, -0.5}, {4, -9}}});
  EXPECT_TRUE(search.done()) << "no more tokens";
  EXPECT_THAT(Tokens(search.answers()), ElementsAre(ElementsAre(2, 7, 1), ElementsAre(2, 8, 3)));
  EXPECT_FLOAT_EQ(static_cast<float>(search.answers()[0].score), -4.0f / 3);
  EXPECT_FALSE(search.answers()[0].ended);
}

TEST(BeamSearch, WhatEndsIsAnAnswerIfItIsAmongTheBestAndTheOthersGoOn) {
  BeamSearch search({.width = 2, .max_new_tokens = 10, .ends = {kEnd}});
  search.Advance(Offered{{{1, -1}, {2, -2}, {3, -3}, {kEnd, -4}}});
  EXPECT_TRUE(search.answers().empty()) << "the fourth of two";
  search.Advance(Offered{{{kEnd, -0.1f}, {5, -3}}, {{6, -1}, {7, -5}}});
  EXPECT_THAT(Tokens(search.answers()), ElementsAre(ElementsAre(1, kEnd)));
  EXPECT_TRUE(search.answers()[0].ended);
  EXPECT_THAT(search.beams()[0].tokens, ElementsAre(2, 6));
  EXPECT_THAT(search.beams()[1].tokens, ElementsAre(1, 5));
  EXPECT_FALSE(search.done());
}

TEST(BeamSearch, EndsWhenNoBeamCanBeBetterThanTheWorstAnswer) {
  for (const bool early_stopping : {false, true}) {
    BeamSearch search({.width = 2,
                       .length_penalty = 1,
                       .early_stopping = early_stopping,
                       .max_new_tokens = 10,
                       .ends = {kEnd}});
    search.Advance(Offered{{{kEnd, -1}, {1, -1.1f}, {2, -1.2f}, {3, -5}}});
    search.Advance(Offered{{{kEnd, -2}, {4, -2.2f}}, {{5, -2.3f}, {6, -3}}});
    EXPECT_EQ(search.answers().size(), 2u);
    EXPECT_EQ(search.done(), true) << "-3.3 over 2 tokens is less than -1.55";
    BeamSearch other({.width = 2,
                      .length_penalty = 1,
                      .early_stopping = early_stopping,
                      .max_new_tokens = 10,
                      .ends = {kEnd}});
    other.Advance(Offered{{{kEnd, -1}, {1, -1.1f}, {2, -1.2f}, {3, -5}}});
    other.Advance(Offered{{{4, -0.2f}, {kEnd, -0.3f}}, {{5, -2.3f}, {6, -3}}});
    EXPECT_EQ(other.answers().size(), 2u);
    EXPECT_EQ(other.done(), early_stopping) << "-1.3 over 2 tokens is more than -1";
  }
}

TEST(BeamSearch, AModelWithFewTokensHasFewerBeams) {
  BeamSearch search({.width = 4, .max_new_tokens = 2, .ends = {kEnd}});
  search.Advance(Offered{{{1, -1}, {kEnd, -2}}});
  EXPECT_EQ(search.beams().size(), 1u);
  search.Advance(Offered{{{1, -1}, {kEnd, -2}}});
  EXPECT_TRUE(search.done());
  EXPECT_THAT(Tokens(search.answers()),
              ElementsAre(ElementsAre(1, 1), ElementsAre(1, kEnd), ElementsAre(kEnd)));
}

}  // namespace
}  // namespace lamina
