#include "plan/chart/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace lamina {
namespace {

// Pixels of one chart, and the margins in it for labels.
constexpr double kHeight = 320;
constexpr double kLeft = 70, kRight = 20, kTop = 46, kBottom = 50;
constexpr double kHeading = 34;
constexpr double kLegendRow = 16;
constexpr std::array<const char*, 8> kPalette = {"#1f6fb4", "#d1602a", "#3a9150", "#8a56b0",
                                                 "#b03a54", "#6b6b6b", "#1896a3", "#a8862c"};

// Maps values to pixels. The y axis goes up, so that its first pixel is the larger one.
struct Axis {
  double low = 0, high = 1;
  double first_pixel = 0, last_pixel = 1;
  std::vector<double> ticks;
  bool powers_of_two = false;

  double At(double value) const {
    const double share = powers_of_two ? std::log2(value / low) / std::log2(high / low)
                                       : (value - low) / (high - low);
    return first_pixel + share * (last_pixel - first_pixel);
  }
  bool Holds(double value) const { return value >= low && value <= high; }
};

bool IsDrawn(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

// Empty at first: low > high.
struct ValueRange {
  double low = std::numeric_limits<double>::infinity(),
         high = -std::numeric_limits<double>::infinity();

  void Cover(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

Axis MakeAxis(ValueRange range, double first_pixel, double last_pixel) {
  if (!(range.low <= range.high)) range = {0, 1};
  const std::vector<double> ticks = AxisTicks(range.low, range.high, 6);
  return {ticks.front(), ticks.back(), first_pixel, last_pixel, ticks, false};
}

// The range has at least one doubling, and no more ticks than there is room for.
Axis MakeAxisOfPowers(ValueRange range, double first_pixel, double last_pixel) {
  constexpr double kMostTicks = 9;
  if (!(range.low <= range.high) || !(range.low > 0)) range = {1, 2};
  const double first = std::floor(std::log2(range.low) + 1e-9);
  const double last = std::max(first + 1, std::ceil(std::log2(range.high) - 1e-9));
  Axis axis{std::exp2(first), std::exp2(last), first_pixel, last_pixel, {}, true};
  const double stride = std::ceil((last - first + 1) / kMostTicks);
  for (double power = first; power <= last; power += stride) axis.ticks.push_back(std::exp2(power));
  return axis;
}

std::string SvgText(double x, double y, const char* attributes, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes,
                     EscapeXml(text));
}

std::string SvgLine(double x1, double y1, double x2, double y2, const char* attributes) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, attributes);
}

std::string DrawAxes(const Chart& chart, const Axis& x, const Axis& y) {
  std::string out;
  for (const double tick : y.ticks) {
    out += SvgLine(x.first_pixel, y.At(tick), x.last_pixel, y.At(tick),
                   "class=\"grid\" stroke=\"#e4e4e4\"");
    out += SvgText(x.first_pixel - 6, y.At(tick) + 4, "text-anchor=\"end\"",
                   fmt::format("{:.6g}", tick));
  }
  for (const double tick : x.ticks) {
    out += SvgLine(x.At(tick), y.first_pixel, x.At(tick), y.first_pixel + 4,
                   "class=\"axis\" stroke=\"#555\"");
    out += SvgText(x.At(tick), y.first_pixel + 17, "text-anchor=\"middle\"",
                   fmt::format("{:.6g}", tick));
  }
  out += SvgLine(x.first_pixel, y.first_pixel, x.last_pixel, y.first_pixel,
                 "class=\"axis\" stroke=\"#555\"");
  out += SvgText((x.first_pixel + x.last_pixel) / 2, y.first_pixel + 36, "text-anchor=\"middle\"",
                 chart.x_label);
  const double middle = (y.first_pixel + y.last_pixel) / 2;
  out += fmt::format(
      "<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      middle, EscapeXml(chart.y_label));
  return out + SvgText(x.first_pixel, 16, "font-weight=\"bold\"", chart.title);
}

std::string ErrorBar(double x, double low, double high, const char* color) {
  constexpr double kEnd = 4;  // half of the short lines at its ends
  return fmt::format(
      "<path class=\"spread\" d=\"M{0:.1f} {3:.1f}H{1:.1f}M{0:.1f} {4:.1f}H{1:.1f}M{2:.1f} "
      "{3:.1f}V{4:.1f}\" fill=\"none\" "
      "stroke=\"{5}\"/>\n",
      x - kEnd, x + kEnd, x, low, high, color);
}

std::string DrawSegments(const ChartSeries& series, const char* color, const Axis& x,
                         const Axis& y) {
  std::string path;
  for (size_t i = 0; i + 1 < series.points.size(); i += 2) {
    const auto &from = series.points[i], &to = series.points[i + 1];
    if (IsDrawn(from) && IsDrawn(to))
      path += fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", x.At(from.first), y.At(from.second),
                          x.At(to.first), y.At(to.second));
  }
  return fmt::format(
      "<path class=\"segments\" d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"4\"/>\n", path,
      color);
}

std::string DrawSeries(const ChartSeries& series, const char* color, const Axis& x, const Axis& y) {
  if (series.segments) return DrawSegments(series, color, x, y);
  std::string out;
  if (series.dots) {
    for (const auto& point : series.points) {
      if (IsDrawn(point))
        out += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"{}\" fill-opacity=\"0.5\"/>\n",
            x.At(point.first), y.At(point.second), color);
    }
    return out;
  }
  for (const auto& point : series.points) {
    if (IsDrawn(point)) out += fmt::format("{:.1f},{:.1f} ", x.At(point.first), y.At(point.second));
  }
  std::string marks;
  for (size_t i = 0; i < series.spreads.size(); ++i) {
    const auto& [low, high] = series.spreads[i];
    if (IsDrawn(series.points[i]) && IsDrawn(series.spreads[i]))
      marks += ErrorBar(x.At(series.points[i].first), y.At(low), y.At(high), color);
  }
  for (const auto& point : series.points) {
    if (!series.marked || !IsDrawn(point)) continue;
    marks += fmt::format(
        "<circle class=\"mark\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"><title>{}: "
        "{:.6g}, {:.6g}</title></circle>\n",
        x.At(point.first), y.At(point.second), color, EscapeXml(series.name), point.first,
        point.second);
  }
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>\n",
                     out, color) +
         marks;
}

// The words of vertical marks stand in the `row`-th line, so that those of near marks do not
// overlap.
std::string DrawMark(const ChartMark& mark, const Axis& x, const Axis& y, double row) {
  constexpr char kDashed[] = "class=\"note\" stroke=\"#333\" stroke-dasharray=\"4 3\"";
  if (mark.vertical) {
    const double at = x.At(mark.at);
    const bool at_the_end = at > x.first_pixel + 0.7 * (x.last_pixel - x.first_pixel);
    return SvgLine(at, y.first_pixel, at, y.last_pixel, kDashed) +
           SvgText(at + (at_the_end ? -4 : 4), y.first_pixel - 6 - 14 * row,
                   at_the_end ? "class=\"note\" fill=\"#333\" text-anchor=\"end\""
                              : "class=\"note\" fill=\"#333\"",
                   mark.label);
  }
  return SvgLine(x.first_pixel, y.At(mark.at), x.last_pixel, y.At(mark.at), kDashed) +
         SvgText(x.last_pixel, y.At(mark.at) - 4,
                 "class=\"note\" fill=\"#333\" text-anchor=\"end\"", mark.label);
}

// The names of the series, in rows of as many as have room. `height` is that of the rows after the
// first.
struct Legend {
  std::string svg;
  double height = 0;
};

Legend DrawLegend(const Chart& chart, double chart_width) {
  Legend legend;
  double at = kLeft;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const std::string& name = chart.series[i].name;
    if (name.empty()) continue;
    // A guess at the width of the text.
    const double width = 30 + 7.1 * static_cast<double>(name.size());
    if (at > kLeft && at + width > chart_width) {
      at = kLeft;
      legend.height += kLegendRow;
    }
    legend.svg +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n",
                    at, 25 + legend.height, kPalette[i % kPalette.size()]);
    legend.svg += SvgText(at + 14, 34 + legend.height, "", name);
    at += width;
  }
  return legend;
}

std::string DrawChart(const Chart& chart, double width) {
  ValueRange xs, ys;
  ys.Cover(0);
  for (const ChartSeries& series : chart.series) {
    for (const auto& point : series.points) {
      if (!IsDrawn(point)) continue;
      xs.Cover(point.first);
      ys.Cover(point.second);
    }
    for (const auto& spread : series.spreads) {
      if (!IsDrawn(spread)) continue;
      ys.Cover(spread.first);
      ys.Cover(spread.second);
    }
  }
  const Legend legend = DrawLegend(chart, width);
  const Axis x =
      (chart.x_in_powers_of_two ? MakeAxisOfPowers : MakeAxis)(xs, kLeft, width - kRight);
  const Axis y = MakeAxis(ys, kHeight - kBottom, kTop + legend.height);
  std::string out = DrawAxes(chart, x, y);
  for (size_t i = 0; i < chart.series.size(); ++i)
    out += DrawSeries(chart.series[i], kPalette[i % kPalette.size()], x, y);
  double row = 0;
  // A mark far from all values is left out: an axis that holds it would squeeze them together.
  for (const ChartMark& mark : chart.marks) {
    if ((mark.vertical ? x : y).Holds(mark.at)) out += DrawMark(mark, x, y, row++);
  }
  return out + legend.svg;
}

}  // namespace

std::string EscapeXml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::vector<double> AxisTicks(double low, double high, int count) {
  // A single value gets a range around it.
  if (high <= low) {
    low -= low == 0 ? 0 : std::abs(low) / 2;
    high += high == 0 ? 1 : std::abs(high) / 2;
  }
  const double rough = (high - low) / (count - 1);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double round : {1.0, 2.0, 5.0}) {
    if (round * power >= rough * (1 - 1e-9)) {
      step = round * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string DrawCharts(const std::string& heading, const std::vector<Chart>& charts, int columns,
                       double width) {
  const auto rows = (static_cast<int>(charts.size()) + columns - 1) / columns;
  const double top = heading.empty() ? 0 : kHeading;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width * columns, top + kHeight * rows);
  if (!heading.empty()) out += SvgText(20, 22, "font-size=\"15\" font-weight=\"bold\"", heading);
  for (size_t i = 0; i < charts.size(); ++i) {
    const auto column = static_cast<double>(i % static_cast<size_t>(columns)),
               row = static_cast<double>(i / static_cast<size_t>(columns));
    out += fmt::format("<g transform=\"translate({:.0f} {:.0f})\">\n{}</g>\n", column * width,
                       top + row * kHeight, DrawChart(charts[i], width));
  }
  return out + "</svg>\n";
}

}  // namespace lamina
