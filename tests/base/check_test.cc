#include "base/check.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(CheckDeathTest, SaysWhereWhatAndWhatWasExpected) {
  const int slots = 3;
  EXPECT_DEATH(LAMINA_CHECK(slots == 4, "Release: {} slots", slots),
               "lamina: .*check_test.cc:[0-9]+: Release: 3 slots \\(expected: slots == 4\\)");
}

TEST(Check, LooksAtTheMessageOnlyWhenItFails) {
  int num_looks = 0;
  const auto look = [&] { return ++num_looks; };
  LAMINA_CHECK(true, "{}", look());
  EXPECT_EQ(num_looks, 0);
}

}  // namespace
}  // namespace lamina
