#include "plan/chart/stacked_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/chart/svg_chart.h"

namespace lamina {
namespace {

// Pixels.
constexpr double kStackWidth = 1060, kStackLabelWidth = 330, kStackTextWidth = 130, kStackRow = 26;
// The title and the legend.
constexpr double kStackTop = 52;
constexpr size_t kMaxLabelBytes = 48;
constexpr std::array<const char*, 8> kStackPalette = {"#1f6fb4", "#7fb2de", "#8a56b0", "#d1602a",
                                                      "#e8b04a", "#9a9a9a", "#3a9150", "#b03a54"};

// Cuts long labels, between two characters of UTF-8.
std::string Shortened(const std::string& label) {
  if (label.size() <= kMaxLabelBytes) return label;
  size_t end = kMaxLabelBytes - 3;
  while (end > 0 && (static_cast<unsigned char>(label[end]) & 0xC0) == 0x80) --end;
  return label.substr(0, end) + "...";
}

std::string StackLegend(const StackedBarChart& chart) {
  std::string svg;
  double x = 20;
  for (size_t i = 0; i < chart.part_names.size(); ++i) {
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"29\" width=\"11\" height=\"11\" fill=\"{}\"/><text x=\"{:.0f}\" "
        "y=\"39\">{}</text>\n",
        x, kStackPalette[i % kStackPalette.size()], x + 16, EscapeXml(chart.part_names[i]));
    // A guess at the width of the text.
    x += 34 + 6.6 * static_cast<double>(chart.part_names[i].size());
  }
  return svg;
}

double SumOf(const StackedBar& bar) {
  double sum = 0;
  for (const double part : bar.parts) sum += part;
  return sum;
}

}  // namespace

std::string ToSvg(const StackedBarChart& chart) {
  double longest = 0;
  for (const StackedBar& bar : chart.bars) longest = std::max(longest, SumOf(bar));
  const double scale =
      longest > 0 ? (kStackWidth - kStackLabelWidth - kStackTextWidth) / longest : 0;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect class=\"paper\" width=\"100%\" "
      "height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"20\" y=\"18\" font-weight=\"bold\">{2}</text>\n{3}",
      kStackWidth, kStackTop + kStackRow * static_cast<double>(chart.bars.size()) + 8,
      EscapeXml(chart.title), StackLegend(chart));
  double y = kStackTop;
  for (const StackedBar& bar : chart.bars) {
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n",
                       kStackLabelWidth - 8, y + 16, EscapeXml(Shortened(bar.label)));
    double x = kStackLabelWidth;
    for (size_t i = 0; i < bar.parts.size(); ++i) {
      const double width = bar.parts[i] * scale;
      if (width <= 0) continue;
      svg += fmt::format(
          "<rect class=\"part\" x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\" "
          "fill=\"{}\">",
          x, y + 3, width, kStackRow - 7, kStackPalette[i % kStackPalette.size()]);
      svg += fmt::format("<title>{}: {:.3g} {}</title></rect>\n",
                         EscapeXml(i < chart.part_names.size() ? chart.part_names[i] : ""),
                         bar.parts[i], EscapeXml(chart.unit));
      x += width;
    }
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\">{}</text>\n", x + 7, y + 16,
                       EscapeXml(bar.text));
    y += kStackRow;
  }
  return svg + "</svg>\n";
}

}  // namespace lamina
