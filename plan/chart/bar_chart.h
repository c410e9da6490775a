// Horizontal bars as an SVG picture that needs nothing else.
#pragma once

#include <string>
#include <vector>

namespace lamina {

// The part of a bar from `from` to `to`, on the chart's scale; a point has both alike and gets a
// mark.
struct ChartBar {
  std::string label;
  double from = 0, to = 0;
  std::string text;                // behind the bar
  bool second = false;             // in the second colour
  double lowest = 0, highest = 0;  // an error bar, if they differ
};

struct BarChart {
  std::string title;
  std::vector<ChartBar> bars;  // from top to bottom
  bool logarithmic = false;    // then all numbers are above 0
};

std::string ToSvg(const BarChart& chart);

}  // namespace lamina
