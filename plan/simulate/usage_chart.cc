// The picture of a simulation: three panels over time, one below the other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "plan/simulate/simulation_report.h"

namespace lamina {
namespace {

// Pixels.
constexpr double kWidth = 860, kLeft = 70, kRight = 150, kPanel = 150, kGap = 48, kTop = 40;

struct Curve {
  std::string name, colour;
  std::vector<double> values;  // one for each piece of time
};

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text)
    escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '>' ? "&gt;" : std::string(1, c);
  return escaped;
}

// The least of 1, 2 and 5 times a power of ten that is at least `value`.
double RoundUp(double value) {
  if (value <= 0) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value) return factor * power;
  }
  return 10 * power;
}

// Curves over the run's `seconds`. The y axis is a share of 0 to 100 % or else ends at a round
// number.
std::string Panel(const std::string& title, const std::vector<Curve>& curves, double top,
                  double seconds, bool share) {
  double highest = 0;
  for (const Curve& curve : curves) {
    for (const double value : curve.values) highest = std::max(highest, value);
  }
  const double scale = share ? 1 : RoundUp(highest);
  const double width = kWidth - kLeft - kRight;
  std::string svg = fmt::format("<text x='{}' y='{:.0f}' font-weight='bold'>{}</text>\n", kLeft,
                                top - 8, Escaped(title));
  for (const double part : {0.0, 0.5, 1.0}) {
    const double y = top + kPanel * (1 - part);
    svg += fmt::format("<line x1='{}' y1='{:.1f}' x2='{}' y2='{:.1f}' stroke='#ddd'/>", kLeft, y,
                       kLeft + width, y);
    svg += fmt::format(
        "<text x='{}' y='{:.1f}' text-anchor='end'>{}</text>\n", kLeft - 6, y + 4,
        share ? fmt::format("{:.0f} %", 100 * part) : fmt::format("{:g}", scale * part));
  }
  double legend = top + 10;
  for (const Curve& curve : curves) {
    svg +=
        fmt::format("<polyline fill='none' stroke='{}' stroke-width='1.5' points='", curve.colour);
    const auto count = static_cast<double>(curve.values.size());
    for (size_t i = 0; i < curve.values.size(); ++i) {
      const double value = std::min(curve.values[i] / scale, 1.0);
      svg += fmt::format("{:.1f},{:.1f} ", kLeft + width * (static_cast<double>(i) + 0.5) / count,
                         top + kPanel * (1 - value));
    }
    svg += "'/>\n";
    svg += fmt::format("<text x='{}' y='{:.0f}' fill='{}'>{}</text>\n", kLeft + width + 10, legend,
                       curve.colour, Escaped(curve.name));
    legend += 16;
  }
  for (const double part : {0.0, 0.5, 1.0}) {
    svg += fmt::format("<text x='{:.1f}' y='{:.0f}' text-anchor='middle'>{:.4g} s</text>\n",
                       kLeft + width * part, top + kPanel + 15, seconds * part);
  }
  return svg;
}

}  // namespace

std::string ToSvg(const ClusterModel& cluster, const SimulationResult& result) {
  using Piece = UsageTimeline::Piece;
  const std::vector<Piece>& pieces = result.usage.pieces();
  const double piece_s = std::chrono::duration<double>(result.usage.piece_length()).count();
  const double seconds = piece_s * static_cast<double>(pieces.size());
  const auto curve = [&](const char* name, const char* colour,
                         const std::function<double(const Piece&)>& value) {
    Curve made{name, colour, {}};
    for (const Piece& piece : pieces) made.values.push_back(value(piece));
    return made;
  };
  const auto mean = [](double sum, const Piece& piece) {
    return piece.weight > 0 ? sum / piece.weight : 0;
  };
  const auto num_compute = static_cast<double>(cluster.compute.size()),
             num_memory = static_cast<double>(std::max<size_t>(cluster.memory.size(), 1));
  const double height = kTop + 3 * (kPanel + kGap);
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1:.0f}' viewBox='0 0 {0} "
      "{1:.0f}' font-family='sans-serif' "
      "font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n",
      kWidth, height);
  svg += Panel(
      "busy, share of the time",
      {curve("compute nodes", "#1f77b4",
             [&](const Piece& p) { return p.compute_s / piece_s / num_compute; }),
       curve("memory nodes", "#d62728",
             [&](const Piece& p) { return p.memory_s / piece_s / num_memory; }),
       curve("network", "#7f7f7f",
             [&](const Piece& p) { return p.network_s / piece_s / num_compute; }),
       curve("KV cache used", "#2ca02c", [&](const Piece& p) { return mean(p.used_share, p); })},
      kTop, seconds, /*share=*/true);
  svg += Panel("sequences",
               {curve("running", "#1f77b4", [&](const Piece& p) { return mean(p.running, p); }),
                curve("waiting", "#ff7f0e", [&](const Piece& p) { return mean(p.waiting, p); })},
               kTop + kPanel + kGap, seconds, /*share=*/false);
  svg += Panel("output tokens/s",
               {curve("tokens/s", "#9467bd", [&](const Piece& p) { return p.tokens / piece_s; })},
               kTop + 2 * (kPanel + kGap), seconds, /*share=*/false);
  return svg + "</svg>\n";
}

}  // namespace lamina
