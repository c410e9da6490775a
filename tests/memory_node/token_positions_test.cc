#include "memory_node/token_positions.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

constexpr SequenceId kSequence{7};

TEST(TokenPositionsTest, AWholeSequenceHasItsTokensWhereTheyAreCounted) {
  TokenPositions positions;
  positions.Append(kSequence, 0, 0);
  positions.Append(kSequence, 5, 5);
  for (const int64_t position : {0, 3, 5, 9})
    EXPECT_EQ(positions.NumBefore(kSequence, position, 9), position);
  EXPECT_EQ(positions.NumBefore(kSequence, 100, 9), 9);
  EXPECT_EQ(positions.NumBefore(kSequence, -4, 9), 0);
}

// Tokens 4..7, 12..15 and 20, 21 are here: counted against a list of them.
TEST(TokenPositionsTest, RangesOfASpreadSequence) {
  TokenPositions positions;
  positions.Append(kSequence, 0, 4);
  positions.Append(kSequence, 4, 12);
  positions.Append(kSequence, 6, 14);  // follows
  positions.Append(kSequence, 8, 20);
  const std::vector<int64_t> here = {4, 5, 6, 7, 12, 13, 14, 15, 20, 21};
  for (int64_t num_tokens = 0; num_tokens <= 10; ++num_tokens) {
    for (int64_t position = 0; position < 30; ++position) {
      int64_t before = 0;
      for (int64_t i = 0; i < num_tokens; ++i) before += here[static_cast<size_t>(i)] < position;
      EXPECT_EQ(positions.NumBefore(kSequence, position, num_tokens), before)
          << num_tokens << " tokens, before " << position;
    }
  }
}

TEST(TokenPositionsTest, AnUnknownSequenceHasNone) {
  TokenPositions positions;
  EXPECT_EQ(positions.NumBefore(kSequence, 5, 9), 0);
  positions.Append(kSequence, 0, 3);
  positions.Release(kSequence);
  EXPECT_EQ(positions.NumBefore(kSequence, 5, 9), 0);
}

TEST(TokenPositionsTest, TheFirstTokenStartsASequenceAnew) {
  TokenPositions positions;
  positions.Append(kSequence, 0, 100);
  positions.Append(kSequence, 0, 2);
  EXPECT_EQ(positions.NumBefore(kSequence, 4, 9), 2);
}

TEST(TokenPositionsTest, PositionsOfAnySizeAreCounted) {
  TokenPositions positions;
  positions.Append(kSequence, 0, INT64_MAX);
  EXPECT_EQ(positions.NumBefore(kSequence, INT64_MAX, 9), 0);
  positions.Append(kSequence, 0, 0);
  EXPECT_EQ(positions.NumBefore(kSequence, INT64_MAX, 9), 9);
}

}  // namespace
}  // namespace lamina
