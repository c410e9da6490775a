// Which slices lie outside.
#include "splitter/offload_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OffloadOptions, OfEveryIntervalTheLastLiesOutside) {
  EXPECT_THAT(OutsideByInterval(7, 3), ElementsAre(false, false, true, false, false, true, false));
  EXPECT_THAT(OutsideByInterval(3, 1), ElementsAre(true, true, true));
  EXPECT_THAT(OutsideByInterval(2, 3), ElementsAre(false, false));
  EXPECT_THAT(OutsideByInterval(2, 0), ElementsAre(false, false));
}

// By brute force: of all intervals with the same number of blocks outside the largest.
TEST(OffloadOptions, UsefulIntervalsAreThoseThatDiffer) {
  EXPECT_THAT(UsefulIntervals(23, 2), ElementsAre(1, 2, 3, 4, 5, 7, 0));
  for (int n = 1; n <= 60; ++n) {
    for (const int buffers : {1, 2, 5}) {
      std::vector<int> expected;
      for (int interval = 1; interval <= n; ++interval) {
        if (n / interval > buffers && n / interval != n / (interval + 1))
          expected.push_back(interval);
      }
      expected.push_back(0);
      EXPECT_EQ(UsefulIntervals(n, buffers), expected) << n << " " << buffers;
    }
  }
}

TEST(OffloadOptions, BytesAreThoseOfWhatStaysAndOfTheBuffers) {
  EXPECT_EQ(BytesInMemory({10, 20, 30, 40}, {false, true, false, true}, 3), 10 + 30 + 3 * 40);
  EXPECT_EQ(BytesInMemory({10, 20}, {false, false}, 3), 30);
}

TEST(OffloadOptions, OfAGroupTheLastOnesLieOutside) {
  EXPECT_THAT(OutsideByInterval(7, 4, 2),
              ElementsAre(false, false, true, true, false, false, true));
  EXPECT_THAT(OutsideByInterval(3, 2, 2), ElementsAre(true, true, true));
}

TEST(OffloadOptions, APortionIsOfWholeParts) {
  EXPECT_THAT(OutsideByPortion({10, 10, 10, 10}, 1), ElementsAre(true, true, true, true));
  EXPECT_THAT(OutsideByPortion({10, 10, 10, 10}, 0.5), ElementsAre(false, false, true, true));
  EXPECT_THAT(OutsideByPortion({10, 10, 10, 10}, 0.4), ElementsAre(false, false, true, true))
      << "the middle of the third is at 0.625";
  EXPECT_THAT(OutsideByPortion({10, 10, 10, 10}, 0.1), ElementsAre(false, false, false, false));
  EXPECT_THAT(OutsideByPortion({}, 0.5), ElementsAre());
}

TEST(OffloadOptions, ANodeBeginsWithAsManyInMemoryAsThereIsRoomFor) {
  const std::vector<int64_t> bytes(12, 100);
  OffloadOptions options{.is_auto = true};
  EXPECT_EQ(*FirstInterval(options, bytes), 0) << "no limit";
  options.memory_bytes = 1200;
  EXPECT_EQ(*FirstInterval(options, bytes), 0);
  EXPECT_TRUE(MayChangeTo(0, options, bytes));
  options.memory_bytes = 1199;
  EXPECT_EQ(*FirstInterval(options, bytes), 4) << "three outside, two buffers";
  EXPECT_TRUE(MayChangeTo(4, options, bytes));
  EXPECT_TRUE(MayChangeTo(1, options, bytes));
  EXPECT_FALSE(MayChangeTo(6, options, bytes)) << "two outside take no less than none";
  EXPECT_FALSE(MayChangeTo(0, options, bytes));
  options.memory_bytes = 200;
  EXPECT_EQ(*FirstInterval(options, bytes), 1);
  options.memory_bytes = 199;
  const Status refused = FirstInterval(options, bytes).status();
  EXPECT_EQ(refused.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(refused.message(), HasSubstr("need 200 of memory"));
}

TEST(OffloadOptions, AFixedIntervalHasToSaveMemory) {
  const std::vector<int64_t> bytes(4, 100);
  EXPECT_EQ(*FirstInterval({.interval = 1}, bytes), 1);
  const Status refused = FirstInterval({.interval = 2}, bytes).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(),
              HasSubstr("2 of 4 blocks would lie outside and take turns in 2 buffers"));
  EXPECT_FALSE(MayChangeTo(1, OffloadOptions{.interval = 1}, bytes));
}

TEST(OffloadOptions, AnExpansionIsSoManyLayersInMemory) {
  EXPECT_EQ(*SlotsForExpansion(40, 2), 20);
  EXPECT_EQ(*SlotsForExpansion(40, 2.1), 20);
  EXPECT_EQ(*SlotsForExpansion(9, 9.0 / 7), 7);
  EXPECT_EQ(*SlotsForExpansion(40, 1000), 2);
  EXPECT_THAT(SlotsForExpansion(40, 1.01).status().message(),
              HasSubstr("leaves none of 40 layers outside"));
  EXPECT_EQ(*TokensInMemory(40, 10, {.expansion = 2}, 4000), 20);
  EXPECT_EQ(*TokensInMemory(40, 10, {.interval = 2}, 4000), 400 / 22);
  EXPECT_EQ(*TokensInMemory(40, 10, {}, 4000), 10);
}

}  // namespace
}  // namespace lamina
