#include "manager/suspensions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace suspensions_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pointee;

constexpr NodeId kM0{1}, kM1{2}, kC0{3}, kC1{4};

TEST(Suspensions, ANodeIsSuspendedUntilAllThatSuspendedItHaveItBack) {
  Suspensions suspensions;
  EXPECT_TRUE(suspensions.Begin(kM0, kC0, 1, "first"));
  EXPECT_FALSE(suspensions.Begin(kM0, kC1, 1, "second"));
  EXPECT_TRUE(suspensions.Begin(kM1, kC0, 2, "third"));
  EXPECT_THAT(suspensions.nodes(), ElementsAre(kM0, kM1));
  EXPECT_THAT(suspensions.WhyOf(kM0), Pointee(std::string("first")));
  EXPECT_FALSE(suspensions.End(kM0, kC0, 1));
  EXPECT_THAT(suspensions.WhyOf(kM0), Pointee(std::string("second")));
  EXPECT_TRUE(suspensions.End(kM0, kC1, 1));
  EXPECT_EQ(suspensions.WhyOf(kM0), nullptr);
  EXPECT_THAT(suspensions.nodes(), ElementsAre(kM1));
}

// The same is told by results of other compute nodes.
TEST(Suspensions, WhatComesLateIsIgnored) {
  Suspensions suspensions;
  EXPECT_TRUE(suspensions.Begin(kM0, kC0, 1, ""));
  EXPECT_FALSE(suspensions.Begin(kM0, kC0, 1, "")) << "it is known";
  EXPECT_TRUE(suspensions.End(kM0, kC0, 1));
  EXPECT_FALSE(suspensions.Begin(kM0, kC0, 1, "")) << "it is over";
  EXPECT_TRUE(suspensions.Begin(kM0, kC0, 2, ""));
  EXPECT_FALSE(suspensions.End(kM0, kC0, 1)) << "another one has begun";
  EXPECT_THAT(suspensions.nodes(), ElementsAre(kM0));
  EXPECT_TRUE(suspensions.End(kM0, kC0, 2));
}

TEST(Suspensions, TheEndMayComeBeforeTheBegin) {
  Suspensions suspensions;
  EXPECT_FALSE(suspensions.End(kM0, kC0, 1));
  EXPECT_FALSE(suspensions.Begin(kM0, kC0, 1, ""));
  EXPECT_THAT(suspensions.nodes(), IsEmpty());
}

TEST(Suspensions, ANodeThatIsLostIsForgotten) {
  Suspensions suspensions;
  EXPECT_TRUE(suspensions.Begin(kM0, kC0, 1, ""));
  EXPECT_TRUE(suspensions.Begin(kM1, kC0, 2, ""));
  suspensions.Forget(kM0);
  EXPECT_THAT(suspensions.nodes(), ElementsAre(kM1));
  suspensions.Clear();
  EXPECT_THAT(suspensions.nodes(), IsEmpty());
  EXPECT_TRUE(suspensions.Begin(kM1, kC0, 1, "")) << "they count anew";
}

}  // namespace suspensions_test
}  // namespace lamina
