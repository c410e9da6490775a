#include "base/departure.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace lamina {
namespace {

bool IsSignalled(const WakeFd& wake) {
  pollfd entry{wake.fd(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

TEST(Departure, NobodyAskedNobodyLeaves) {
  Departure departure(Clock::duration::zero());
  WakeFd wake;
  EXPECT_FALSE(departure.IsDue(/*in_use=*/false, wake));
  EXPECT_FALSE(departure.IsDue(/*in_use=*/true, wake));
}

TEST(Departure, WhoIsNotUsedLeavesAtOnce) {
  Departure departure(std::chrono::hours(1));
  WakeFd wake;
  EXPECT_TRUE(departure.Ask());
  EXPECT_TRUE(departure.IsDue(/*in_use=*/false, wake));
}

TEST(Departure, WhoIsUsedStaysUntilThatIsOver) {
  Departure departure(std::chrono::hours(1));
  WakeFd wake;
  EXPECT_TRUE(departure.Ask());
  wake.Signal();
  EXPECT_FALSE(departure.IsDue(/*in_use=*/true, wake));
  EXPECT_FALSE(IsSignalled(wake)) << "its owner would not sleep any more";
  EXPECT_FALSE(departure.Ask()) << "known";
  EXPECT_FALSE(departure.IsDue(/*in_use=*/true, wake));
  EXPECT_TRUE(departure.IsDue(/*in_use=*/false, wake));
}

TEST(Departure, NotForLongerThanItsPatience) {
  Departure departure(Clock::duration::zero());
  WakeFd wake;
  EXPECT_TRUE(departure.Ask());
  EXPECT_FALSE(departure.IsDue(/*in_use=*/true, wake)) << "its time begins when it is noticed";
  EXPECT_TRUE(departure.IsDue(/*in_use=*/true, wake));
}

TEST(Departure, NowIsNow) {
  Departure departure(std::chrono::hours(1));
  WakeFd wake;
  EXPECT_TRUE(departure.Ask());
  EXPECT_FALSE(departure.IsDue(/*in_use=*/true, wake));
  departure.AskNow();
  EXPECT_FALSE(departure.Ask()) << "a later wish does not take it back";
  EXPECT_TRUE(departure.IsDue(/*in_use=*/true, wake));
}

}  // namespace
}  // namespace lamina
