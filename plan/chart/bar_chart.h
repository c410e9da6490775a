// Draws horizontal bars as an SVG picture without scripts or style sheets.
#pragma once

#include <string>
#include <vector>

namespace lamina {

// One row: a bar from `from` to `to` on the chart's scale. If both are the same it is a short mark.
struct ChartBar {
  std::string label;
  double from = 0, to = 0;
  std::string text;     // behind the bar
  bool second = false;  // in the second colour
  // The ends of an error bar. Equal: none is drawn.
  double lowest = 0, highest = 0;
};

struct BarChart {
  std::string title;
  std::vector<ChartBar> bars;  // from top to bottom
  // A logarithmic scale. REQUIRES: all numbers are above 0.
  bool logarithmic = false;
};

// A whole SVG document. Texts are escaped.
std::string ToSvg(const BarChart& chart);

}  // namespace lamina
