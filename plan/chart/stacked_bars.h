// Draws horizontal bars made of parts as an SVG picture without scripts or style sheets.
#pragma once

#include <string>
#include <vector>

namespace lamina {

struct StackedBar {
  std::string label;
  std::vector<double> parts;  // in the order of part_names; none below 0
  std::string text;           // behind the bar
};

struct StackedBarChart {
  std::string title;
  // The legend. The palette has 8 colours; with more parts colours repeat.
  std::vector<std::string> part_names;
  // The unit of the parts, for the tooltip of each.
  std::string unit;
  std::vector<StackedBar> bars;  // from top to bottom
};

// A whole SVG document. Each part above 0 is a <rect class="part">. Texts are escaped, long labels
// shortened.
std::string ToSvg(const StackedBarChart& chart);

}  // namespace lamina
