#include "bench/serve/prompts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/serve/served_endpoint.h"
#include "tests/support/paths.h"
#include "text/byte_tokenizer.h"

namespace lamina {
namespace {

const std::string kModel = SourcePath("/models/tiny-stories");

TraceRequest OfLength(int64_t tokens, std::vector<int64_t> blocks = {}) {
  TraceRequest request;
  request.input_tokens = tokens;
  request.prefix_blocks = std::move(blocks);
  return request;
}

class PromptsTest : public ::testing::TestWithParam<std::string> {
 protected:
  PromptsTest() : tokenizer_(LoadTokenizerOrBytes(GetParam())) {
    EXPECT_TRUE(tokenizer_.ok()) << tokenizer_.status();
  }

  int64_t Count(const std::string& text) const {
    return static_cast<int64_t>((*tokenizer_)->Encode(text, true).value().size());
  }

  Result<std::unique_ptr<Tokenizer>> tokenizer_;
};

TEST_P(PromptsTest, HaveExactlyTheWantedTokens) {
  const PromptMaker maker(tokenizer_->get(), 5);
  for (size_t i = 0; i < 200; ++i) {
    const auto tokens = static_cast<int64_t>(2 + i * 7);
    EXPECT_EQ(Count(maker.Text(OfLength(tokens), i, 0)), tokens);
    EXPECT_EQ(std::ssize(maker.Ids(OfLength(tokens), i, 0, 0)), tokens);
  }
}

TEST_P(PromptsTest, EqualBlocksAreEqualText) {
  const PromptMaker maker(tokenizer_->get(), 5);
  const std::string a = maker.Text(OfLength(150, {3, 9, 4}), 0, 64),
                    b = maker.Text(OfLength(190, {3, 9, 5}), 1, 64);
  EXPECT_EQ(Count(a), 150);
  EXPECT_EQ(Count(b), 190);
  const std::vector<TokenId> ids_a = (*tokenizer_)->Encode(a, true).value(),
                             ids_b = (*tokenizer_)->Encode(b, true).value();
  const auto same = std::mismatch(ids_a.begin(), ids_a.end(), ids_b.begin()).first - ids_a.begin();
  EXPECT_GE(same, 128);
  EXPECT_LE(same, 133);  // the third block is another one
  const std::vector<TokenId> c = maker.Ids(OfLength(150, {3, 9, 4}), 0, 64, 0),
                             d = maker.Ids(OfLength(190, {3, 9, 5}), 1, 64, 0);
  EXPECT_TRUE(std::equal(c.begin(), c.begin() + 128, d.begin()));
  EXPECT_NE(c[130], d[130]);
}

TEST_P(PromptsTest, AreAFunctionOfSeedAndRequest) {
  const PromptMaker maker(tokenizer_->get(), 5), again(tokenizer_->get(), 5),
      other(tokenizer_->get(), 6);
  EXPECT_EQ(maker.Text(OfLength(30), 1, 0), again.Text(OfLength(30), 1, 0));
  EXPECT_NE(maker.Text(OfLength(30), 1, 0), maker.Text(OfLength(30), 2, 0));
  EXPECT_NE(maker.Text(OfLength(30), 1, 0), other.Text(OfLength(30), 1, 0));
}

// A tokenizer of words, and a model that has none: each byte is a token.
INSTANTIATE_TEST_SUITE_P(Tokenizers, PromptsTest,
                         ::testing::Values(kModel, SourcePath("/configs/models/llama-13b")));

TEST(Prompts, WithoutATokenizerWordsAreCounted) {
  const PromptMaker maker(nullptr, 5);
  const std::string text = maker.Text(OfLength(40), 0, 0);
  EXPECT_EQ(1 + std::count(text.begin(), text.end(), ' '), 40);
  // Away from both ends, where special tokens are.
  for (const TokenId id : maker.Ids(OfLength(1000), 0, 0, 400)) {
    EXPECT_GE(id, 100);
    EXPECT_LT(id, 300);
  }
  TraceRequest with_text = OfLength(3);
  with_text.prompt = "as it is";
  EXPECT_EQ(maker.Text(with_text, 0, 0), "as it is");
}

}  // namespace
}  // namespace lamina
