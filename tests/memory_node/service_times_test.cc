#include "memory_node/service_times.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

void Pass() {
  const int64_t end = NowNs() + 20'000;
  while (NowNs() < end) continue;
}

TEST(ServiceTimes, TheBubbleIsWhatPassesBetweenWorkWhileAStepIsUnderWay) {
  ServiceTimes times;
  Pass();
  times.BeginStep();
  const int64_t ordered = NowNs();
  Pass();
  times.BeginWork();
  const int64_t begun = NowNs();
  Pass();
  const ReplyTimes first = times.Take();
  times.EndWork();
  EXPECT_GE(first.bubble_ns, 20'000);
  EXPECT_LE(first.bubble_ns, begun - ordered + 10'000'000);
  EXPECT_GE(first.done_ns - first.started_ns, 20'000);
  EXPECT_EQ(first.clock, ClockId());

  times.BeginWork();  // at once
  times.EndStep();
  EXPECT_LT(times.Take().bubble_ns, NowNs() - begun - 20'000);
  times.EndWork();

  const int64_t over = NowNs();
  Pass();
  times.BeginWork();
  EXPECT_EQ(times.Take().bubble_ns, 0) << "no step was under way since " << over;
  times.EndWork();
}

TEST(ServiceTimes, AStepThatIsOrderedDuringWorkBeginsBehindIt) {
  ServiceTimes times;
  times.BeginWork();
  times.BeginStep();
  Pass();
  times.EndWork();
  const int64_t idle = NowNs();
  times.BeginWork();
  EXPECT_LE(times.Take().bubble_ns, NowNs() - idle + 10'000) << "the work is no part of it";
}

TEST(ServiceTimes, WaitingIsFromPollToWork) {
  ServiceTimes times;
  const int64_t noticed = NowNs();
  Pass();
  times.Noticed(noticed);
  times.BeginWork();
  EXPECT_EQ(times.Take().noticed_ns, noticed);
  times.Noticed(NowNs() + 1'000'000'000);
  times.BeginWork();
  const ReplyTimes odd = times.Take();
  EXPECT_EQ(odd.noticed_ns, odd.started_ns) << "not after it was started";
}

}  // namespace
}  // namespace lamina
