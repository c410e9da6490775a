#include "bench/ideal_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace lamina {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

IdealSchedule Schedule(int num_compute, int num_batches, bool evenly, double slices,
                       double attention) {
  return {num_compute, num_batches, evenly, slices, attention, attention};
}

TEST(IdealSchedule, OneBatchPerNodeTakesSlicesAndAttentionInTurn) {
  EXPECT_THAT(IdealRounds(Schedule(1, 1, false, 30, 12)), ElementsAre(42));
  EXPECT_THAT(IdealRounds(Schedule(3, 3, false, 30, 12)), ElementsAre(42, 42, 42));
}

// Two nodes, three batches of 85 rows: node 0 has two of them and takes 2 x 28.1 ms for a round,
// node 1 has one, 28.1 + 8.7 ms.
TEST(IdealSchedule, NodesWithFewerFixedBatchesHaveShorterRounds) {
  const std::vector<double> rounds = IdealRounds(Schedule(2, 3, false, 28.1e-3, 8.7e-3));
  EXPECT_THAT(rounds, ElementsAre(DoubleEq(56.2e-3), DoubleEq(36.8e-3), DoubleEq(56.2e-3)));
  const double rate = std::accumulate(rounds.begin(), rounds.end(), 0.0,
                                      [](double sum, double round) { return sum + 85 / round; });
  EXPECT_NEAR(rate, 5335, 1) << "tokens/s";
}

TEST(IdealSchedule, RotationSpreadsBatchesEvenly) {
  EXPECT_THAT(IdealRounds(Schedule(2, 3, true, 30, 12)), ElementsAre(45, 45, 45));
  EXPECT_THAT(IdealRounds(Schedule(4, 5, true, 40, 9)), ElementsAre(50, 50, 50, 50, 50));
  EXPECT_THAT(IdealRounds(Schedule(4, 5, true, 40, 11)), ElementsAre(55, 55, 55, 55, 55))
      << "the memory nodes are the slower ones";
}

TEST(IdealSchedule, MemoryNodesAttendForOneBatchAtATime) {
  EXPECT_THAT(IdealRounds(Schedule(2, 3, true, 10, 30)), ElementsAre(90, 90, 90));
  EXPECT_THAT(IdealRounds(Schedule(1, 2, false, 10, 10)), ElementsAre(20, 20));
}

// Rounds of 60, 45 and 60 would need 20 (2 / 60 + 1 / 45) = 1.11 of the memory nodes' time. The
// fast batch gives way: 2 x 20 / 60 leave a third, in which its 20 take 60.
TEST(IdealSchedule, WhereMemoryNodesAreTooSlowTheFastBatchWaits) {
  EXPECT_THAT(IdealRounds({2, 3, false, 30, 15, 20}),
              ElementsAre(DoubleEq(60), DoubleEq(60), DoubleEq(60)));
  EXPECT_THAT(IdealRounds({2, 3, false, 30, 15, 19}),
              ElementsAre(DoubleEq(60), DoubleNear(19 / (1 - 2 * 19 / 60.), 1e-9), DoubleEq(60)));
}

TEST(IdealSchedule, MemoryThatIsSpreadUnevenlyCountsWithItsMean) {
  EXPECT_THAT(IdealRounds({2, 2, false, 10, 30, 15}), ElementsAre(40, 40))
      << "each batch on another memory node: nobody waits";
}

}  // namespace
}  // namespace lamina
