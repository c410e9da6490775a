#include "manager/engine.h"

#include <gtest/gtest.h>

#include <set>

namespace lamina {
namespace {

TEST(ChoiceSeed, KeepsTheSeedForTheFirstChoiceOnly) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{7}, UINT64_MAX}) {
    EXPECT_EQ(ChoiceSeed(seed, 0, 0), seed);
    EXPECT_NE(ChoiceSeed(seed, 0, 1), seed);
    EXPECT_NE(ChoiceSeed(seed, 1, 0), seed);
  }
}

// Neither within a request nor between requests whose seeds are neighbours.
TEST(ChoiceSeed, NoTwoAreEqual) {
  std::set<uint64_t> seeds;
  size_t num = 0;
  for (const uint64_t near : {uint64_t{0}, uint64_t{1} << 32, UINT64_MAX - 4}) {
    for (uint64_t seed = near; seed < near + 4; ++seed) {
      for (uint64_t prompt = 0; prompt < 32; ++prompt) {
        for (uint64_t choice = 0; choice < 32; ++choice, ++num)
          seeds.insert(ChoiceSeed(seed, prompt, choice));
      }
    }
  }
  EXPECT_EQ(seeds.size(), num);
}

}  // namespace
}  // namespace lamina
