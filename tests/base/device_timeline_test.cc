#include "base/device_timeline.h"

#include <gtest/gtest.h>
#include <time.h>

namespace lamina {
namespace {

using std::chrono::seconds;

TEST(DeviceTimeline, AnIdleDeviceStartsAtOnce) {
  DeviceTimeline device;
  const TimePoint now = Clock::now();
  EXPECT_EQ(device.Book(now, milliseconds(3)), now + milliseconds(3));
  EXPECT_EQ(device.Book(now + seconds(1), milliseconds(3)), now + seconds(1) + milliseconds(3));
}

TEST(DeviceTimeline, ABusyDeviceStartsWhenItIsFree) {
  DeviceTimeline device;
  const TimePoint now = Clock::now();
  device.Book(now, milliseconds(10));
  EXPECT_EQ(device.Book(now + milliseconds(4), milliseconds(5)), now + milliseconds(15));
  EXPECT_EQ(device.Book(now + milliseconds(15), milliseconds(1)), now + milliseconds(16))
      << "nothing is lost between";
}

TEST(DeviceTimeline, WorkOfNoCostOrLessDelaysNothing) {
  DeviceTimeline device;
  const TimePoint now = Clock::now();
  EXPECT_EQ(device.Book(now, Clock::duration::zero()), now);
  EXPECT_EQ(device.Book(now, -seconds(1)), now);
}

TEST(DeviceTimeline, SecondsOfTheCostModel) {
  EXPECT_EQ(FromSeconds(0.0025), microseconds(2500));
  EXPECT_EQ(FromSeconds(0), Clock::duration::zero());
  EXPECT_EQ(FromSeconds(1e300), std::chrono::hours(366 * 24)) << "more nanoseconds would overflow";
}

double CpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

TEST(DeviceTimeline, RunsTakeTheirTimeWithoutTheCore) {
  DeviceTimeline device;
  const TimePoint start = Clock::now();
  const double cpu_before = CpuSeconds();
  for (int i = 0; i < 20; ++i) device.Run(milliseconds(5));
  EXPECT_GE(Clock::now() - start, milliseconds(100));
  EXPECT_LT(CpuSeconds() - cpu_before, 0.05) << "a thread that spins would use all of the 0.1 s";
}

TEST(SleepUntil, APastTimeReturns) { SleepUntil(Clock::now() - seconds(1)); }

}  // namespace
}  // namespace lamina
