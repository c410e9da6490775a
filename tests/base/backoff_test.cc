#include "base/backoff.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lamina {
namespace {

constexpr Clock::duration kPatience = milliseconds(40);

// How long it polls before it would sleep.
Clock::duration PollUntilSleep(Backoff& backoff) {
  const TimePoint begin = Clock::now();
  while (!backoff.Idle()) {
  }
  return Clock::now() - begin;
}

TEST(Backoff, PollsForItsPatience) {
  Backoff backoff(kPatience);
  EXPECT_GE(PollUntilSleep(backoff), kPatience);
  EXPECT_GE(PollUntilSleep(backoff), kPatience) << "woken for nothing";
}

TEST(Backoff, PollsBrieflyAfterALongWait) {
  Backoff backoff(kPatience);
  PollUntilSleep(backoff);
  backoff.Reset();
  Clock::duration least = kPatience;  // others may want the core
  for (int woken_for_nothing = 0; woken_for_nothing < 10; ++woken_for_nothing) least = std::min(least, PollUntilSleep(backoff));
  EXPECT_LT(least, kPatience / 2);
}

TEST(Backoff, PollsForItsPatienceAgainAfterAShortWait) {
  Backoff backoff(kPatience);
  PollUntilSleep(backoff);
  backoff.Reset();
  Clock::duration most = kPatience / 16;
  for (int short_waits = 0; short_waits < 10; ++short_waits) {
    most = std::max(most, PollUntilSleep(backoff));
    backoff.Reset();
  }
  EXPECT_GE(most, kPatience);
}

TEST(Backoff, WhatComesWhileItPollsStartsAnew) {
  Backoff backoff(kPatience);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(backoff.Idle());
    backoff.Reset();
  }
  EXPECT_GE(PollUntilSleep(backoff), kPatience);
}

}  // namespace
}  // namespace lamina
