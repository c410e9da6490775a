#include "base/departure.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace lamina {
namespace {

bool IsSignalled(const Departure& departure) {
  pollfd entry{departure.fd(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

TEST(Departure, NobodyAskedNobodyLeaves) {
  Departure departure(Clock::duration::zero());
  EXPECT_FALSE(departure.IsDue(/*in_use=*/false));
  EXPECT_FALSE(departure.IsDue(/*in_use=*/true));
}

TEST(Departure, WhoIsNotUsedLeavesAtOnce) {
  Departure departure(std::chrono::hours(1));
  departure.Ask();
  EXPECT_TRUE(departure.IsDue(/*in_use=*/false));
}

TEST(Departure, WhoIsUsedStaysUntilThatIsOver) {
  Departure departure(std::chrono::hours(1));
  departure.Ask();
  EXPECT_TRUE(IsSignalled(departure));
  EXPECT_FALSE(departure.IsDue(/*in_use=*/true));
  EXPECT_FALSE(IsSignalled(departure)) << "its owner would not sleep any more";
  departure.Ask();
  EXPECT_FALSE(IsSignalled(departure)) << "known";
  EXPECT_FALSE(departure.IsDue(/*in_use=*/true));
  EXPECT_TRUE(departure.IsDue(/*in_use=*/false));
}

TEST(Departure, NotForLongerThanItsPatience) {
  Departure departure(Clock::duration::zero());
  departure.Ask();
  EXPECT_FALSE(departure.IsDue(/*in_use=*/true)) << "its time begins when it is noticed";
  EXPECT_TRUE(departure.IsDue(/*in_use=*/true));
}

TEST(Departure, NowIsNow) {
  Departure departure(std::chrono::hours(1));
  departure.Ask();
  EXPECT_FALSE(departure.IsDue(/*in_use=*/true));
  departure.AskNow();
  EXPECT_TRUE(IsSignalled(departure));
  departure.Ask();
  EXPECT_TRUE(departure.IsDue(/*in_use=*/true)) << "a later wish does not take it back";
}

}  // namespace
}  // namespace lamina
