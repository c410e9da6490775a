#include "compute_node/experts.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lamina {
namespace {

std::vector<RoutedExpert> Route(const std::vector<float>& logits, size_t per_token,
                                ExpertRouting routing = ExpertRouting::kSoftmax) {
  std::vector<RoutedExpert> routed(per_token);
  RouteRow(logits, routing, routed);
  return routed;
}

TEST(RouteRowTest, TheLikeliestExpertsShareTheWeightByTheirLogits) {
  const std::vector<RoutedExpert> routed = Route({0.5f, 2, -1, 3}, 2);
  EXPECT_EQ(routed[0].expert, 1);
  EXPECT_EQ(routed[1].expert, 3);
  EXPECT_FLOAT_EQ(routed[1].weight, 1 / (1 + std::exp(-1.0f)));
  EXPECT_FLOAT_EQ(routed[0].weight + routed[1].weight, 1);
}

TEST(RouteRowTest, OverAllLogitsTheWeightOfTheOthersIsLost) {
  const std::vector<RoutedExpert> routed =
      Route({0.5f, 2, -1, 3}, 2, ExpertRouting::kSoftmaxOverAll);
  const float sum = std::exp(0.5f) + std::exp(2.0f) + std::exp(-1.0f) + std::exp(3.0f);
  EXPECT_EQ(routed[0].expert, 1);
  EXPECT_EQ(routed[1].expert, 3);
  EXPECT_FLOAT_EQ(routed[0].weight, std::exp(2.0f) / sum);
  EXPECT_FLOAT_EQ(routed[1].weight, std::exp(3.0f) / sum);
}

TEST(RouteRowTest, SigmoidsAreOfEachLogitAlone) {
  const std::vector<RoutedExpert> routed =
      Route({0.5f, 2, -1, 3}, 2, ExpertRouting::kSigmoidInputs);
  EXPECT_EQ(routed[0].expert, 1);
  EXPECT_EQ(routed[1].expert, 3);
  EXPECT_FLOAT_EQ(routed[0].weight, 1 / (1 + std::exp(-2.0f)));
  EXPECT_FLOAT_EQ(routed[1].weight, 1 / (1 + std::exp(-3.0f)));
}

TEST(RouteRowTest, OfEqualExpertsTheFirstCounts) {
  const std::vector<RoutedExpert> routed = Route({1, 7, 7, 7}, 2);
  EXPECT_EQ(routed[0].expert, 1);
  EXPECT_EQ(routed[1].expert, 2);
  EXPECT_FLOAT_EQ(routed[0].weight, 0.5f);
}

TEST(RouteRowTest, LargeAndNaNLogitsGoSomewhere) {
  EXPECT_FLOAT_EQ(Route({1000, 2000, 3000}, 1)[0].weight, 1);
  for (const RoutedExpert& routed : Route({NAN, NAN, NAN}, 2))
    EXPECT_TRUE(routed.expert >= 0 && routed.expert < 3);
}

}  // namespace
}  // namespace lamina
