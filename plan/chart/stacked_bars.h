// Horizontal bars made of parts, as an SVG picture that needs nothing else.
#pragma once

#include <string>
#include <vector>

namespace lamina {

struct StackedBar {
  std::string label;
  std::vector<double> parts;  // as the chart's names; none below 0
  std::string text;           // behind the bar
};

struct StackedBarChart {
  std::string title;
  // In the legend; at most as many as the palette has colours, 8.
  std::vector<std::string> part_names;
  std::string unit;              // of the parts, for who points at one
  std::vector<StackedBar> bars;  // from top to bottom
};

// A whole SVG document. Parts above 0 are <rect class="part">; texts are escaped, long labels
// shortened.
std::string ToSvg(const StackedBarChart& chart);

}  // namespace lamina
