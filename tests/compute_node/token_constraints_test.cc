#include "compute_node/token_constraints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/constraint.h"
#include "tests/support/paths.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

class TokenConstraintsTest : public ::testing::Test {
 protected:
  TokenConstraintsTest()
      : model_(*LoadedModel::Describe(SourcePath("/models/tiny-stories"))),
        vocab_(model_->config.vocab_size),
        constraints_(*model_) {
    params_.banned = {2};
  }

  static std::string Choice(std::vector<std::string> choices) {
    return CompileConstraint({.kind = ConstraintKind::kChoice, .choices = std::move(choices)})
        ->ToBytes();
  }
  // The tokens that write exactly this.
  std::vector<TokenId> Writing(const std::string& text) const {
    const std::shared_ptr<const Vocabulary> vocabulary = *model_->vocabulary->Get();
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < vocab_; ++token) {
      if (vocabulary->bytes(token) == text) tokens.push_back(token);
    }
    return tokens;
  }

  const std::unique_ptr<LoadedModel> model_;
  const int64_t vocab_;
  TokenConstraints constraints_;
  SamplingParams params_;
  SequenceConstraint kept_;
};

TEST_F(TokenConstraintsTest, WithoutConstraintsThereIsNoMask) {
  const Result<NextTokens> next = constraints_.Next(params_, {}, kept_);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->tokens, nullptr);
}

TEST_F(TokenConstraintsTest, ListAndTextAreBothKept) {
  const TokenId a = Writing("a").front(), b = Writing("b").front();
  params_.grammar = Choice({"a", "b"});
  Result<NextTokens> next = constraints_.Next(params_, {}, kept_);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(HasToken(next->tokens->bits, a) && HasToken(next->tokens->bits, b));
  EXPECT_FALSE(next->may_end);

  TokenMask list{std::string(TokenMaskBytes(vocab_), '\0')};
  AddToken(b, list);
  AddToken(Writing("c").front(), list);
  params_.allowed_tokens = list.bits;
  SequenceConstraint other;
  next = constraints_.Next(params_, {}, other);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->tokens->count, 1);
  EXPECT_TRUE(HasToken(next->tokens->bits, b));
  next = constraints_.Next(params_, std::vector<TokenId>{b}, other);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->tokens->count, 0);
  EXPECT_TRUE(next->may_end);
  constraints_.Trim();
}

TEST_F(TokenConstraintsTest, WhatCannotGoOnSaysSo) {
  params_.grammar = Choice({"a"});
  const std::vector<TokenId> wrong = {Writing("b").front()};
  EXPECT_THAT(constraints_.Next(params_, wrong, kept_).status().message(),
              HasSubstr("does not satisfy"));
  params_.banned.clear();
  const std::vector<TokenId> whole = {Writing("a").front()};
  EXPECT_THAT(constraints_.Next(params_, whole, kept_).status().message(),
              HasSubstr("no token of the vocabulary"));
  params_.grammar = "no grammar";
  SequenceConstraint broken;
  EXPECT_FALSE(constraints_.Next(params_, {}, broken).ok());
  params_.grammar.clear();
  params_.allowed_tokens = "x";
  EXPECT_THAT(constraints_.Next(params_, {}, broken).status().message(),
              HasSubstr("of this model's vocabulary"));
}

}  // namespace
}  // namespace lamina
