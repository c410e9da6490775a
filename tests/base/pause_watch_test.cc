#include "base/pause_watch.h"

#include <gtest/gtest.h>

namespace lamina::testing {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

TEST(PauseWatchTest, TellsHowLongALoopDidNotRun) {
  PauseWatch watch{seconds(1)};
  TimePoint now(hours(1));
  EXPECT_EQ(watch.Turn(now), seconds(0)) << "the first turn";
  for (const milliseconds turn :
       {milliseconds(0), milliseconds(10), milliseconds(1000), milliseconds(1900)})
    EXPECT_EQ(watch.Turn(now += turn), seconds(0)) << turn.count();
  EXPECT_EQ(watch.Turn(now += seconds(16)), seconds(15)) << "a turn may have waited for a second";
  EXPECT_EQ(watch.Turn(now += milliseconds(10)), seconds(0)) << "each pause is told once";
  EXPECT_EQ(watch.Turn(now += seconds(2)), seconds(1));
}

}  // namespace
}  // namespace lamina::testing
