#include "grammar/number_index.h"

#include <gtest/gtest.h>

namespace lamina::testing {
namespace {

// Hashes that collide wholly, in their low bits, or not at all.
TEST(NumberIndex, FindsWhatWasInserted) {
  for (const auto& hash_of :
       {+[](int32_t) { return uint64_t{7}; },
        +[](int32_t i) { return static_cast<uint64_t>(i) << 40; },
        +[](int32_t i) { return static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15; }}) {
    NumberIndex index;
    const auto find = [&](int32_t wanted) {
      return index.Find(hash_of(wanted), [&](int32_t number) { return number == wanted; });
    };
    EXPECT_EQ(find(0), NumberIndex::kNone);
    for (int32_t i = 0; i < 500; ++i) index.Insert(hash_of(i), i);
    for (int32_t i = 0; i < 500; ++i) EXPECT_EQ(find(i), i);
    EXPECT_EQ(find(500), NumberIndex::kNone);
    index.Clear();
    EXPECT_EQ(find(3), NumberIndex::kNone);
    index.Insert(hash_of(3), 3);
    EXPECT_EQ(find(3), 3);
  }
}

}  // namespace
}  // namespace lamina::testing
