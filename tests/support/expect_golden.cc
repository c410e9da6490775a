#include "tests/support/expect_golden.h"

#include <gtest/gtest.h>

#include "tests/support/serving.h"

namespace lamina::testing {

void ExpectContinuation(const GoldenPrompt& golden, const Generated& got, double tolerance) {
  SCOPED_TRACE("prompt: " + golden.prompt);
  ASSERT_TRUE(got.finished);
  ASSERT_TRUE(got.error.ok()) << got.error;
  EXPECT_EQ(got.tokens, golden.continuation_ids);
  EXPECT_EQ(got.reason,
            golden.finish_reason == "stop" ? FinishReason::kStop : FinishReason::kLength);
  ASSERT_EQ(got.logprobs.size(), golden.logprobs.size());
  for (size_t i = 0; i < golden.logprobs.size(); ++i)
    EXPECT_NEAR(got.logprobs[i], golden.logprobs[i], tolerance) << "token " << i;
}

void ExpectGolden(Engine& engine, const std::vector<GoldenPrompt>& golden, Clock::duration patience,
                  double tolerance) {
  std::vector<Collector> collectors(golden.size());
  for (size_t i = 0; i < golden.size(); ++i)
    ASSERT_TRUE(engine.Submit(GreedyRequest(golden[i].prompt_ids, 96), collectors[i].sink()).ok());
  for (size_t i = 0; i < golden.size(); ++i) {
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(patience))) << "prompt: " << golden[i].prompt;
    ExpectContinuation(golden[i], collectors[i].results()[0], tolerance);
  }
}

}  // namespace lamina::testing
