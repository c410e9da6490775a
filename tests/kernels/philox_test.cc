#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/sampling.h"

namespace lamina {
namespace {

using Block = std::array<uint32_t, 4>;

// Known answers of the Random123 paper and library.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// seed 0, position 0: the upper 53 bits of 6627e8d5 e169c58d.
TEST(Random01, IsMadeOfTheFirstTwoWords) {
  EXPECT_EQ(Random01(0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
}

TEST(Random01, DependsOnEveryBitOfSeedAndPosition) {
  std::set<double> seen = {Random01(0, 0)};
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_TRUE(seen.insert(Random01(uint64_t{1} << bit, 0)).second);
    EXPECT_TRUE(seen.insert(Random01(0, uint64_t{1} << bit)).second);
  }
}

TEST(Random01, IsUniform) {
  constexpr int kBins = 100, kDraws = 100000;
  int count[kBins] = {};
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double u = Random01(42, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++count[static_cast<int>(u * kBins)];
  }
  double chi_square = 0;
  for (int n : count) chi_square += (n - 1000.0) * (n - 1000.0) / 1000;
  EXPECT_LT(chi_square, 149);  // 99 degrees of freedom: 0.1 %
}

}  // namespace
}  // namespace lamina
