#include "base/clock.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/virtual_clock.h"

namespace lamina {
namespace {

TEST(Clock, ReadsTheSystemsClock) {
  const auto before = std::chrono::steady_clock::now();
  const TimePoint now = Clock::now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, std::chrono::steady_clock::now());
}

TEST(Clock, StandsStillUntilATestMovesIt) {
  {
    VirtualClock clock;
    const TimePoint start = Clock::now();
    const Deadline deadline = Deadline::After(std::chrono::hours(1));
    EXPECT_EQ(Clock::now(), start);
    clock.Advance(std::chrono::minutes(59));
    EXPECT_FALSE(deadline.Passed());
    EXPECT_EQ(deadline.RemainingMs(), 60'000);
    EXPECT_DOUBLE_EQ(SecondsSince(start), 59 * 60);
    clock.AdvanceTo(start);
    EXPECT_EQ(Clock::now(), start + std::chrono::minutes(59));
    clock.AdvanceTo(deadline.at());
    EXPECT_TRUE(deadline.Passed());
    EXPECT_EQ(deadline.Remaining(), Clock::duration::zero());
  }
  const auto before = std::chrono::steady_clock::now();
  EXPECT_LE(before, Clock::now());
}

TEST(Clock, ADeadlineAtTheEndOfTimeIsTheLongestWait) {
  VirtualClock clock;
  constexpr int kLongest = std::numeric_limits<int>::max();
  EXPECT_EQ(Deadline(TimePoint::max()).RemainingMs(), kLongest);
  const TimePoint edge = Clock::now() + milliseconds(kLongest);
  EXPECT_EQ(Deadline(edge - milliseconds(1)).RemainingMs(), kLongest - 1);
  EXPECT_EQ(Deadline(edge).RemainingMs(), kLongest);
  EXPECT_EQ(Deadline(edge + milliseconds(1)).RemainingMs(), kLongest);
}

TEST(Clock, ADeadlineCanBeCancelled) {
  VirtualClock clock;
  std::atomic<bool> cancelled = false;
  const Deadline deadline = Deadline::After(std::chrono::hours(1)).Unless(cancelled);
  EXPECT_TRUE(deadline.CanBeCancelled());
  EXPECT_FALSE(deadline.Passed());
  cancelled = true;
  EXPECT_TRUE(deadline.Passed());
}

}  // namespace
}  // namespace lamina
