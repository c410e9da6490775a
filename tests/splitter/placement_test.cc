#include "splitter/placement.h"

#include <gtest/gtest.h>

#include <set>

namespace lamina {
namespace {

TEST(Placement, ABatchThatDoesNotRotateStaysOnOneNode) {
  const Placement placement = Placement::OfWhole(3);
  for (int batch = 0; batch < 7; ++batch) {
    for (int slice = 0; slice < 9; ++slice)
      EXPECT_EQ(placement.RunnerOf(batch, slice, false), batch % 3);
  }
}

// With as many batches as nodes, batches that move on together meet at no node.
TEST(Placement, BatchesThatRotateAreNeverOnOneNodeAtATime) {
  for (int num_nodes = 1; num_nodes <= 5; ++num_nodes) {
    const Placement placement = Placement::OfWhole(num_nodes);
    for (int slice = 0; slice < 12; ++slice) {
      std::set<int> runners;
      for (int batch = 0; batch < num_nodes; ++batch)
        runners.insert(placement.RunnerOf(batch, slice, true));
      EXPECT_EQ(std::ssize(runners), num_nodes) << "slice " << slice;
      EXPECT_EQ(*runners.begin(), 0);
      EXPECT_EQ(*runners.rbegin(), num_nodes - 1);
    }
  }
}

TEST(Placement, OneNodeRunsEverySliceWhateverRotates) {
  const Placement placement = Placement::OfWhole(1);
  for (const bool rotates : {false, true}) EXPECT_EQ(placement.RunnerOf(5, 3, rotates), 0);
}

// Each slice of each batch runs on the ranks of exactly one stage, in every cut of a few slices.
TEST(Placement, TheRanksOfTheSlicesStageRunIt) {
  constexpr int kNumSlices = 6;
  for (int a = 1; a < kNumSlices; ++a) {
    for (int b = a + 1; b < kNumSlices; ++b) {
      const std::vector<int> cuts = {0, a, b, kNumSlices};
      for (const int num_ranks : {1, 2, 3}) {
        const Placement placement = Placement::OfStages(cuts, num_ranks);
        for (int slice = 0; slice < kNumSlices; ++slice) {
          const int stage = slice < a ? 0 : slice < b ? 1 : 2;
          for (int rank = 0; rank < num_ranks; ++rank) {
            for (const bool rotates : {false, true})
              EXPECT_EQ(placement.RunnerOf(4, slice, rotates, rank), stage * num_ranks + rank);
          }
        }
      }
    }
  }
}

TEST(Placement, OneStageOfRanksRunsAll) {
  const Placement placement = Placement::OfStages({0, 4}, 2);
  for (int slice = 0; slice < 4; ++slice) {
    EXPECT_EQ(placement.RunnerOf(1, slice, true, 0), 0);
    EXPECT_EQ(placement.RunnerOf(1, slice, true, 1), 1);
  }
}

}  // namespace
}  // namespace lamina
