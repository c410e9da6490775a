#include "plan/chart/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lamina {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(AxisTicks, AreRoundAndCoverTheRange) {
  EXPECT_EQ(AxisTicks(0, 10, 6), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(AxisTicks(0, 97, 6), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(AxisTicks(3, 3, 2).front(), 0);
  for (const double low : {-1234.5, 0.0, 1e-7, 3.3}) {
    for (const double width : {0.0, 1e-6, 1.0, 77.0, 1e9}) {
      const std::vector<double> ticks = AxisTicks(low, low + width, 6);
      EXPECT_LE(ticks.front(), low + 1e-9 * std::abs(low));
      EXPECT_GE(ticks.back(), low + width - 1e-9 * std::abs(low + width));
      EXPECT_GE(ticks.size(), 2u);
      EXPECT_LE(ticks.size(), 9u);
    }
  }
}

TEST(DrawCharts, PutsValuesWhereTheyBelong) {
  Chart chart;
  chart.title = "a < b";
  chart.series = {{"line & more", {{0, 0}, {5, 50}, {10, 100}}, false}, {"", {{5, 50}}, true}};
  chart.marks = {{50, false, "half"}, {1e9, false, "far away"}};
  const std::string svg = DrawCharts("h", {chart}, 1);
  // The plot reaches from 70 to 500 and from 270 up to 46; the middle is at 285, 158.
  EXPECT_THAT(svg, HasSubstr("points=\"70.0,270.0 285.0,158.0 500.0,46.0 \""));
  EXPECT_THAT(svg, HasSubstr("cx=\"285.0\" cy=\"158.0\""));
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("line &amp; more"));
  EXPECT_THAT(svg, HasSubstr("half"));
  EXPECT_THAT(svg, Not(HasSubstr("far away")));
}

TEST(DrawCharts, SegmentsJoinTwoPointsEach) {
  Chart chart;
  ChartSeries& rows = chart.series.emplace_back();
  rows.points = {{0, 50}, {5, 50}, {10, 100}, {5, 100}, {0, 0}};
  rows.segments = true;
  EXPECT_THAT(
      DrawCharts("", {chart}, 1),
      HasSubstr("<path class=\"segments\" d=\"M70.0 158.0L285.0 158.0M500.0 46.0L285.0 46.0\""))
      << "the last point has none to be joined with";
}

TEST(DrawCharts, AWiderChartHasALongerAxis) {
  Chart chart;
  chart.series = {{"", {{0, 0}, {10, 100}}, false}};
  const std::string svg = DrawCharts("", {chart, chart}, 2, 1000);
  EXPECT_THAT(svg, HasSubstr("width=\"2000\""));
  EXPECT_THAT(svg, HasSubstr("points=\"70.0,270.0 980.0,46.0 \""));
  EXPECT_THAT(svg, HasSubstr("translate(1000 0)"));
}

TEST(DrawCharts, WhatIsNoNumberIsLeftOut) {
  Chart chart;
  const double nothing = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  chart.series = {{"", {{1, nothing}, {infinite, 2}, {3, 4}}, true}};
  const std::string svg = DrawCharts("h", {chart, Chart()}, 2);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace lamina
