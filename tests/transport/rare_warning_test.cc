#include "transport/rare_warning.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(RareLines, OfThoseInAMinuteTheFirstAreWrittenAndTheOthersCounted) {
  RareLines lines;
  const TimePoint start = Clock::now();
  for (int i = 0; i < RareLines::kPerMinute; ++i)
    EXPECT_EQ(lines.Admit(start + std::chrono::seconds(i)), "");
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(lines.Admit(start + std::chrono::seconds(59)), std::nullopt);
  EXPECT_EQ(lines.Admit(start + std::chrono::seconds(60)), " (7 others like it were left out)");
  EXPECT_EQ(lines.Admit(start + std::chrono::seconds(61)), "") << "they are counted once";
}

TEST(RareLines, WhatIsRareIsAllWritten) {
  RareLines lines;
  const TimePoint start = Clock::now();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(lines.Admit(start + i * std::chrono::seconds(4)), "");
}

}  // namespace
}  // namespace lamina
