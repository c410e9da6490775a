// Draws charts with two axes as SVG text without scripts or style sheets: lines, dots, marked
// values, axes with round numbers. The y axis begins at 0, or at a value below it, so that heights
// can be compared.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lamina {

// Values of one colour.
struct ChartSeries {
  // The name in the legend; "" for none.
  std::string name;
  // (x, y). Points that are not finite are left out.
  std::vector<std::pair<double, double>> points;
  // One dot per point; else a line through the points.
  bool dots = false;
  // A line with a mark at each point: <circle class="mark">.
  bool marked = false;
  // A line from each point with an even index to the one after it: <path class="segments">.
  bool segments = false;
  // For each point the ends of an error bar in y. Empty: no error bars.
  std::vector<std::pair<double, double>> spreads = {};
};

// A dashed line across the chart with a few words at it. It is left out where it lies outside of
// the axis.
struct ChartMark {
  double at = 0;
  bool vertical = false;  // at an x, else at a y
  std::string label;
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartSeries> series;  // drawn in this order, in the palette's colours
  std::vector<ChartMark> marks;
  // The x axis is logarithmic, with ticks at powers of two. REQUIRES: its values are above 0.
  bool x_in_powers_of_two = false;
};

// A whole SVG document: the charts in rows of `columns` under the heading, which takes no room if
// it is "". `width` is that of a chart, in pixels. Texts are escaped. Colours are attributes, so
// that a page's style sheet can replace them by class: paper, grid, axis, note.
std::string DrawCharts(const std::string& heading, const std::vector<Chart>& charts, int columns,
                       double width = 520);

// The text as it has to stand in SVG and HTML, quotes included.
std::string EscapeXml(const std::string& text);

// Round numbers that cover [low, high], about `count` of them. REQUIRES: both finite, low <= high,
// count >= 2.
std::vector<double> AxisTicks(double low, double high, int count);

}  // namespace lamina
