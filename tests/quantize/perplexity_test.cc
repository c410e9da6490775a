// Perplexities of the shipped model, against the log-probabilities that PyTorch gave.
#include "quantize/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "tests/support/golden_prompts.h"
#include "tests/support/paths.h"
#include "text/tokenizer.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

class PerplexityTest : public ::testing::Test {
 protected:
  Result<Perplexity> Measure(const std::string& text, int64_t context = 1024,
                             bool by_lines = false) {
    PerplexityOptions options;
    options.model_dir = TinyStoriesDir();
    options.kv_dtype = DType::kF32;
    options.context = context;
    options.by_lines = by_lines;
    return MeasurePerplexity(options, text, team_);
  }

  WorkerTeam team_{2};
};

// What a continuation adds to the sum is what PyTorch says of its tokens.
TEST_F(PerplexityTest, IsThatOfPyTorch) {
  const auto tokenizer = LoadTokenizer(TinyStoriesDir());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  int num_compared = 0;
  for (const GoldenPrompt& golden : GoldenPrompts()) {
    std::vector<TokenId> ids = golden.prompt_ids;
    ids.insert(ids.end(), golden.continuation_ids.begin(), golden.continuation_ids.end());
    const std::string text = (*tokenizer)->Decode(ids, true);
    // A text has other tokens if those of its parts could be joined; and special ones are not read.
    const auto encoded = (*tokenizer)->Encode(text, true);
    const auto prompt = (*tokenizer)->Encode(golden.prompt, true);
    if (!encoded.ok() || *encoded != ids || *prompt != golden.prompt_ids || prompt->size() < 2)
      continue;
    const Result<Perplexity> whole = Measure(text), first = Measure(golden.prompt);
    ASSERT_TRUE(whole.ok() && first.ok()) << whole.status();
    const double expected = -std::accumulate(golden.logprobs.begin(), golden.logprobs.end(), 0.0);
    EXPECT_NEAR(whole->negative_log_likelihood - first->negative_log_likelihood, expected,
                1e-3 * static_cast<double>(golden.logprobs.size()))
        << golden.prompt;
    EXPECT_EQ(whole->num_tokens, std::ssize(ids) - 1);
    ++num_compared;
  }
  EXPECT_GE(num_compared, 8);
}

TEST_F(PerplexityTest, LinesAreTextsOfTheirOwn) {
  const std::string a = "Once upon a time there was a fox.", b = "The rain fell.";
  const Result<Perplexity> of_a = Measure(a), of_b = Measure(b);
  const Result<Perplexity> lines = Measure(a + "\n" + b + "\n", 1024, true);
  ASSERT_TRUE(of_a.ok() && of_b.ok() && lines.ok()) << lines.status();
  EXPECT_NEAR(lines->negative_log_likelihood,
              of_a->negative_log_likelihood + of_b->negative_log_likelihood, 1e-4);
  EXPECT_EQ(lines->num_tokens, of_a->num_tokens + of_b->num_tokens);
}

TEST_F(PerplexityTest, LongTextsAreCutIntoPieces) {
  std::ifstream stories(TinyStoriesDir() + "/held_out.txt");
  std::string text;
  std::getline(stories, text);
  const Result<Perplexity> whole = Measure(text), pieces = Measure(text, 16);
  ASSERT_TRUE(whole.ok() && pieces.ok()) << pieces.status();
  EXPECT_EQ(pieces->num_tokens, whole->num_tokens) << "each token but the first is predicted once";
  EXPECT_GT(pieces->value(), whole->value()) << "with less before it";
}

TEST_F(PerplexityTest, SaysWhatCannotBe) {
  EXPECT_THAT(Measure("").status().message(), HasSubstr("less than two tokens"));
  for (const int64_t context : {int64_t{-1}, int64_t{1}, int64_t{1025}}) {
    EXPECT_THAT(Measure("A fox ran.", context).status().message(),
                HasSubstr("expected 2 to 1024, the model's positions"));
  }
}

}  // namespace
}  // namespace lamina::testing
