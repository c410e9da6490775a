#include "bench/recovery/prefill_alone.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/fake_engine.h"

namespace lamina::testing {
namespace {

constexpr TokenId kEos = 2;
constexpr int64_t kVocab = 512;
const std::vector<int64_t> kLengths = {300, 7, 120};

std::vector<TokenId> OneToken(const GenerateRequest&, int) { return {5}; }

TEST(TimePrefill, SubmitsOtherPromptsOfTheseLengthsForOneToken) {
  FakeEngine engine(OneToken, 1024, kEos);
  ASSERT_TRUE(TimePrefill(engine, kLengths, 50, kVocab).has_value());
  ASSERT_TRUE(TimePrefill(engine, kLengths, 53, kVocab).has_value());
  const std::vector<GenerateRequest> requests = engine.requests();
  ASSERT_EQ(requests.size(), 6u);
  std::set<TokenId> first_tokens;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(std::ssize(requests[i].prompt), kLengths[i % 3]);
    EXPECT_EQ(requests[i].max_new_tokens, 1);
    EXPECT_EQ(requests[i].sampling.seed, 50 + i) << "or start recorders do not know them apart";
    first_tokens.insert(requests[i].prompt[0]);
  }
  EXPECT_EQ(first_tokens.size(), 6u) << "no K and V are shared";
}

TEST(TimePrefill, CountsUntilTheLastHasItsToken) {
  FakeEngine engine(OneToken, 1024, kEos);
  engine.SetTokenTime(std::chrono::milliseconds(20));
  const std::optional<double> seconds = TimePrefill(engine, kLengths, 1, kVocab);
  ASSERT_TRUE(seconds.has_value());
  EXPECT_GE(*seconds, 3 * 0.02) << "one token after another";
}

TEST(TimePrefill, IsUnknownIfAPromptFailsOrIsRefused) {
  FakeEngine engine(OneToken, 1024, kEos);
  engine.RefuseSubmits(PeerLost("no node is left"), 2);
  EXPECT_FALSE(TimePrefill(engine, kLengths, 1, kVocab).has_value());
  FakeEngine failing(OneToken, 1024, kEos);
  failing.FailAfter(0, PeerLost("m1 is gone"));
  EXPECT_FALSE(TimePrefill(failing, kLengths, 1, kVocab).has_value());
}

}  // namespace
}  // namespace lamina::testing
