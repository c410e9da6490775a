#include "plan/chart/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/chart/svg_chart.h"

namespace lamina {
namespace {

// Pixels.
constexpr double kPictureWidth = 960, kLabelWidth = 340, kTextWidth = 150, kRowHeight = 22,
                 kHeadingHeight = 34;
constexpr const char* kBarColours[] = {"#4e79a7", "#f28e2b"};

}  // namespace

std::string ToSvg(const BarChart& chart) {
  double low = chart.logarithmic ? 1e300 : 0, high = 0;
  for (const ChartBar& bar : chart.bars) {
    high = std::max({high, bar.to, bar.highest});
    if (chart.logarithmic) low = std::min(low, bar.from);
  }
  const auto x = [&](double value) {
    const double share = chart.logarithmic
                             ? std::log(value / low) / std::max(1e-9, std::log(high / low))
                             : value / std::max(high, 1e-300);
    return kLabelWidth + share * (kPictureWidth - kLabelWidth - kTextWidth);
  };
  const double height = kHeadingHeight + kRowHeight * static_cast<double>(chart.bars.size()) + 8;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n<rect class=\"paper\" width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n<text x=\"8\" y=\"20\" "
      "font-weight=\"bold\">{2}</text>\n",
      kPictureWidth, height, EscapeXml(chart.title));
  double y = kHeadingHeight;
  for (const ChartBar& bar : chart.bars) {
    const bool has_spread = bar.highest > bar.lowest;
    const double width = std::max(3.0, x(bar.to) - x(bar.from));  // a point is still seen
    svg += fmt::format(
        "<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text><rect x=\"{:.1f}\" "
        "y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\" "
        "class=\"bar\" fill=\"{}\"/><text x=\"{:.1f}\" y=\"{:.0f}\">{}</text>\n",
        kLabelWidth - 8, y + 15, EscapeXml(bar.label), x(bar.from), y + 3, width, kRowHeight - 6,
        kBarColours[bar.second ? 1 : 0],
        std::max(x(bar.from) + width, has_spread ? x(bar.highest) : 0) + 6, y + 15,
        EscapeXml(bar.text));
    if (has_spread) {
      svg += fmt::format(
          "<path class=\"spread axis\" d=\"M{0:.1f} {2:.1f}H{1:.1f}M{0:.1f} "
          "{3:.1f}V{4:.1f}M{1:.1f} {3:.1f}V{4:.1f}\" fill=\"none\" "
          "stroke=\"#333\"/>\n",
          x(bar.lowest), x(bar.highest), y + kRowHeight / 2, y + kRowHeight / 2 - 4,
          y + kRowHeight / 2 + 4);
    }
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace lamina
