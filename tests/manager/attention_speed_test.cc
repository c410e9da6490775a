#include "manager/attention_speed.h"

#include <gtest/gtest.h>

#include <vector>

namespace lamina {
namespace {

MemoryStats Counters(int64_t messages, int64_t us, int64_t tokens) {
  MemoryStats stats;
  stats.attention_messages = messages;
  stats.attention_us = us;
  stats.attended_tokens = tokens;
  return stats;
}

TEST(AttentionSpeed, IsTokensPerMicrosecondSinceTheLastCounters) {
  AttentionSpeed speed;
  EXPECT_FALSE(speed.value());
  EXPECT_TRUE(speed.Update(Counters(10, 10'000, 50'000)));
  EXPECT_DOUBLE_EQ(*speed.value(), 5);
  EXPECT_TRUE(speed.Update(Counters(20, 20'000, 80'000)));
  EXPECT_DOUBLE_EQ(*speed.value(), 4) << "between 5 and 3";
}

TEST(AttentionSpeed, IdleAndShortMessagesSayNothing) {
  AttentionSpeed speed;
  EXPECT_FALSE(speed.Update(Counters(0, 0, 0)));
  EXPECT_FALSE(speed.Update(Counters(10, 249, 5'000))) << "24.9 us each";
  EXPECT_FALSE(speed.Update(Counters(10, 249, 5'000))) << "nothing happened";
  EXPECT_FALSE(speed.value());
  EXPECT_TRUE(speed.Update(Counters(11, 349, 5'200)));
  EXPECT_DOUBLE_EQ(*speed.value(), 2) << "only what is new counts";
}

TEST(SpeedRounds, ComeOftenUntilAllSpeedsAreKnown) {
  SpeedRounds rounds;
  std::vector<int> asked;
  for (int step = 1; step <= 80; ++step) {
    if (rounds.Next(/*all_known=*/step > 9)) asked.push_back(step);
  }
  EXPECT_EQ(asked, (std::vector<int>{4, 8, 40, 72}));
}

}  // namespace
}  // namespace lamina
