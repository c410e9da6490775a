#include "grammar/byte_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace lamina::testing {
namespace {

TEST(ByteSet, IsTheUnionOfItsRanges) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    ByteSet set;
    std::set<int> expected;
    for (uint32_t ranges = random() % 4; ranges > 0; --ranges) {
      const auto low = static_cast<int>(random() % 256);
      const int high = low + static_cast<int>(random() % static_cast<uint32_t>(256 - low));
      set.Add(static_cast<uint8_t>(low), static_cast<uint8_t>(high));
      for (int byte = low; byte <= high; ++byte) expected.insert(byte);
    }
    std::vector<int> descending;
    set.ForEachDescending([&](uint8_t byte) { descending.push_back(byte); });
    EXPECT_EQ(descending, std::vector<int>(expected.rbegin(), expected.rend()));
    EXPECT_EQ(set.size(), std::ssize(expected));
    for (int byte = 0; byte < 256; ++byte) {
      ByteSet one;
      one.Add(static_cast<uint8_t>(byte), static_cast<uint8_t>(byte));
      EXPECT_EQ(set.Has(static_cast<uint8_t>(byte)), expected.contains(byte));
      EXPECT_EQ(set.Intersects(one), expected.contains(byte));
    }
  }
}

}  // namespace
}  // namespace lamina::testing
