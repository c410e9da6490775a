#include "base/backoff.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace lamina {
namespace {

constexpr Clock::duration kPatience = milliseconds(2);
constexpr int kTries = 1000;  // as other programs may want the core

// How long it polls before it would sleep.
Clock::duration PollUntilSleep(Backoff& backoff) {
  const TimePoint begin = Clock::now();
  while (!backoff.Idle()) {
  }
  return Clock::now() - begin;
}

TEST(Backoff, PollsForItsPatience) {
  Clock::duration most{}, most_again{};
  for (int i = 0; i < kTries && std::min(most, most_again) < kPatience; ++i) {
    Backoff backoff(kPatience);
    most = std::max(most, PollUntilSleep(backoff));
    most_again = std::max(most_again, PollUntilSleep(backoff));
  }
  EXPECT_GE(most, kPatience);
  EXPECT_GE(most_again, kPatience) << "woken for nothing";
}

// This thread's core, and another thread there that computes.
TEST(Backoff, SleepsWhereOthersCompute) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  std::atomic<bool> stop{false};
  std::thread computes([&] {
    while (!stop.load(std::memory_order_relaxed)) continue;
  });
  Backoff backoff(std::chrono::seconds(20));
  const Clock::duration polled = PollUntilSleep(backoff);
  stop = true;
  computes.join();
  EXPECT_LT(polled, std::chrono::seconds(10));
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(Backoff, PollsBrieflyAfterALongWait) {
  Backoff backoff(kPatience);
  const TimePoint begin = Clock::now();
  while (Clock::now() - begin <= 2 * kPatience) PollUntilSleep(backoff);
  backoff.Reset();
  Clock::duration least = kPatience;  // others may want the core
  for (int i = 0; i < kTries && least >= kPatience / 2; ++i)
    least = std::min(least, PollUntilSleep(backoff));  // woken for nothing
  EXPECT_LT(least, kPatience / 2);
}

TEST(Backoff, PollsForItsPatienceAgainAfterAShortWait) {
  Backoff backoff(kPatience);
  PollUntilSleep(backoff);
  backoff.Reset();
  Clock::duration most = kPatience / 16;
  for (int short_waits = 0; short_waits < kTries && most < kPatience; ++short_waits) {
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
  Clock::duration most{};
  for (int i = 0; i < kTries && most < kPatience; ++i) {
    most = std::max(most, PollUntilSleep(backoff));
    backoff.Reset();
  }
  EXPECT_GE(most, kPatience);
}

}  // namespace
}  // namespace lamina
