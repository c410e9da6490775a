// Sequences that begin alike share the token slots of that beginning.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/support/expect_golden.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;

class PrefixTest : public ::testing::TestWithParam<Deployment> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Serving>> serving = Serving::Create(GetParam());
    ASSERT_TRUE(serving.ok()) << serving.status();
    serving_ = std::move(*serving);
    const std::vector<GoldenPrompt> golden = GoldenPrompts(GetParam().kv_dtype);
    longest_ = *std::ranges::max_element(
        golden, {}, [](const GoldenPrompt& prompt) { return prompt.prompt_ids.size(); });
  }

  Engine& engine() { return *serving_->engine; }
  SchedulerStats stats() { return engine().status().scheduler; }

  int64_t UsedTokens() {
    int64_t sum = 0;
    for (const NodeUse& node : stats().nodes) sum += node.used_tokens;
    return sum;
  }

  std::unique_ptr<Serving> serving_;
  GoldenPrompt longest_;
};

TEST_P(PrefixTest, EightAnswersUseThePromptsSlotsOnce) {
  const auto prompt_tokens = std::ssize(longest_.prompt_ids),
             new_tokens = std::ssize(longest_.continuation_ids);
  GenerateRequest request = GreedyRequest(longest_.prompt_ids, new_tokens);
  request.n = 8;
  const Collector collector(8);
  ASSERT_TRUE(engine().Submit(request, collector.sink()).ok());
  int64_t most_used = 0;
  int most_running = 0;
  while (!collector.Wait(Deadline::After(milliseconds(1)))) {
    most_used = std::max(most_used, UsedTokens());
    most_running = std::max(most_running, stats().num_running);
  }
  for (const Generated& answer : collector.results()) {
    EXPECT_EQ(answer.tokens, longest_.continuation_ids);
    for (size_t i = 0; i < answer.logprobs.size(); ++i)
      EXPECT_NEAR(answer.logprobs[i], longest_.logprobs[i], kLogprobTolerance);
  }
  EXPECT_GT(most_running, 1);
  EXPECT_GE(most_used, prompt_tokens);
  EXPECT_LE(most_used, prompt_tokens - 1 + 8 * (new_tokens + 1))
      << "all but the prompt's last token are there once";
  EXPECT_EQ(stats().num_shared_tokens, 7 * (prompt_tokens - 1));
  EXPECT_EQ(AwaitNoTokens(engine(), Deadline::After(seconds(10))), "");
}

TEST_P(PrefixTest, AnAnswerGoesOnWhereAnEarlierOneEnded) {
  ExpectGolden(engine(), {longest_});
  EXPECT_EQ(stats().num_shared_tokens, 0);
  ExpectGolden(engine(), {longest_, longest_});
  EXPECT_GE(stats().num_shared_tokens, std::ssize(longest_.prompt_ids) - 1)
      << "the other may be better off on another node";
  // A conversation: what was answered is part of the next prompt.
  GoldenPrompt next = longest_;
  const auto half = static_cast<int64_t>(longest_.continuation_ids.size() / 2);
  next.prompt_ids.insert(next.prompt_ids.end(), next.continuation_ids.begin(),
                         next.continuation_ids.begin() + half);
  next.continuation_ids.erase(next.continuation_ids.begin(), next.continuation_ids.begin() + half);
  next.logprobs.erase(next.logprobs.begin(), next.logprobs.begin() + half);
  const int64_t before = stats().num_shared_tokens;
  ExpectGolden(engine(), {next});
  EXPECT_EQ(stats().num_shared_tokens - before, std::ssize(next.prompt_ids) - 1);
  EXPECT_EQ(AwaitNoTokens(engine(), Deadline::After(seconds(10))), "");
}

std::vector<Deployment> Deployments() {
  std::vector<Deployment> all(4);
  all[0].kind = "in-process";
  all[1].overlap = Switch::kOn;
  all[2].kv_head_parallel = 2;
  all[2].pipeline = PipelineMode::kFixed;
  all[2].num_compute_nodes = 2;
  all[3].num_memory_nodes = 0;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Deployments, PrefixTest, ::testing::ValuesIn(Deployments()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace lamina::testing
