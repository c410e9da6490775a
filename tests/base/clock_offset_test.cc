#include "base/clock_offset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lamina {
namespace {

constexpr uint64_t kForeign = 12345;  // no ClockId of this host
constexpr int64_t kAhead = 7'000'000'000'000;

// Both ways take at least 10 us; what comes on top falls on either of them.
class Peer {
 public:
  ClockExchange Next(int64_t drift_ns = 0) {
    std::exponential_distribution<double> late(1.0 / 50'000);
    const int64_t sent = now_ += 1'000'000, received = sent + 10'000 + std::llround(late(random_));
    const int64_t answered = received + 30'000,
                  taken = answered + 10'000 + std::llround(late(random_));
    return {sent, received + kAhead + drift_ns, answered + kAhead + drift_ns, taken};
  }

 private:
  std::mt19937_64 random_{1};
  int64_t now_ = 5'000'000'000;
};

TEST(ClockOffset, ProcessesOfOneHostShareTheClock) {
  ASSERT_NE(ClockId(), 0u);
  ClockOffset clock;
  EXPECT_FALSE(clock.known());
  clock.Add(ClockId(), {100, 5000, 5001, 200});
  ASSERT_TRUE(clock.known());
  EXPECT_EQ(clock.ToHere(1234), 1234);
  EXPECT_EQ(clock.error_ns(), 0);
}

TEST(ClockOffset, IsEstimatedWithinItsError) {
  Peer peer;
  ClockOffset clock;
  for (int i = 0; i < 300; ++i) {
    clock.Add(kForeign, peer.Next());
    ASSERT_TRUE(clock.known());
    EXPECT_GT(clock.error_ns(), 0);
    ASSERT_LE(std::abs(clock.ToHere(kAhead)), clock.error_ns()) << i;
  }
  EXPECT_LT(clock.error_ns(), 30'000) << "the best of many exchanges had hardly any delay";
}

TEST(ClockOffset, FollowsAClockThatDrifts) {
  Peer peer;
  ClockOffset clock;
  int64_t drift = 0;
  for (int i = 0; i < 2000; ++i) clock.Add(kForeign, peer.Next(drift += 1000));  // 1 ppm
  EXPECT_NEAR(static_cast<double>(clock.ToHere(kAhead + drift)), 0, 256 * 1000 + 30'000)
      << "no more than two windows old";
}

TEST(ClockOffset, TimesThatContradictThemselvesAreIgnored) {
  ClockOffset clock;
  clock.Add(kForeign, {100, 5000, 4000, 200});
  EXPECT_FALSE(clock.known()) << "answered before it was received";
  clock.Add(kForeign, {100, 5000, 5200, 200});
  EXPECT_FALSE(clock.known()) << "took longer there than from here";
  clock.Add(0, {100, 5000, 5050, 200});
  ASSERT_TRUE(clock.known()) << "an unknown clock is not shared";
  EXPECT_EQ(clock.ToHere(5025), 150);
}

}  // namespace
}  // namespace lamina
