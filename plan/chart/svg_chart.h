// Charts as SVG text that needs nothing else: lines, dots, marked values, axes with round numbers.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lamina {

struct ChartSeries {
  std::string name;                               // "" stands in no legend
  std::vector<std::pair<double, double>> points;  // not finite: left out
  bool dots = false;                              // else a line through the points
  // A line with a mark at each point: <circle class="mark">.
  bool marked = false;
  // By point: from where to where y spreads, an error bar; none: no bars.
  std::vector<std::pair<double, double>> spreads = {};
};

// A dashed line across the chart with a few words at it.
struct ChartMark {
  double at = 0;
  bool vertical = false;  // at an x, else at a y
  std::string label;
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartSeries> series;  // drawn in turn in the colours of the palette
  std::vector<ChartMark> marks;
  bool y_from_zero = true;
  bool x_in_powers_of_two = false;  // the x axis; its values are above 0
};

// A whole SVG document: the charts in rows of `columns` under the heading, which takes no room if
// it is "". All texts are escaped. Fills and strokes are attributes, so that a page's style sheet
// can replace them by class: paper, grid, axis, note.
std::string DrawCharts(const std::string& heading, const std::vector<Chart>& charts, int columns);

// The text as it has to stand in SVG and HTML, quotes too.
std::string EscapeXml(const std::string& text);

// Round numbers that cover [low, high], about `count` of them. REQUIRES: both finite, low <= high,
// count >= 2.
std::vector<double> AxisTicks(double low, double high, int count);

}  // namespace lamina
