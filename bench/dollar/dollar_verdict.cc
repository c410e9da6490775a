#include "bench/dollar/dollar_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace lamina {
namespace {

// The best point of a series.
struct Contender {
  std::string name;
  int batch = 0;
  size_t num_runs = 0;
  Spread spread;
};

// The best points of all series, the one with the most first.
std::vector<Contender> ContendersOf(const DollarReport& report, const ReportGroup& group,
                                    bool per_dollar) {
  std::vector<Contender> contenders;
  for (const ReportGroup::Series& series : group.series) {
    const PointResult& best = report.points[BestOf(report, series)];
    const std::optional<Spread> spread = per_dollar ? DollarSpread(report, best) : RateSpread(best);
    if (spread) contenders.push_back({series.name, best.point.batch, best.runs.size(), *spread});
  }
  std::ranges::stable_sort(contenders, [](const Contender& a, const Contender& b) {
    return a.spread.median > b.spread.median;
  });
  return contenders;
}

std::string NumberText(double number) {
  return number >= 100 ? fmt::format("{:.0f}", number) : fmt::format("{:.3g}", number);
}

// "two (24.1 at batch 16, in runs of 22 to 25)".
std::string TextOf(const Contender& contender, double scale) {
  const Spread& spread = contender.spread;
  const std::string runs =
      contender.num_runs < 2 ? "one run"
                             : fmt::format("in runs of {} to {}", NumberText(spread.lowest * scale),
                                           NumberText(spread.highest * scale));
  return fmt::format("{} ({} at batch {}, {})", contender.name, NumberText(spread.median * scale),
                     contender.batch, runs);
}

}  // namespace

Spread RateSpread(const PointResult& point) {
  return {point.median().tokens_per_s, point.lowest(), point.highest()};
}

std::optional<Spread> DollarSpread(const DollarReport& report, const PointResult& point) {
  const std::optional<double> per_dollar = TokensPerDollar(report, point);
  if (!per_dollar) return std::nullopt;
  const Spread rate = RateSpread(point);
  const double scale = rate.median > 0 ? *per_dollar / rate.median : 0;
  return Spread{*per_dollar, rate.lowest * scale, rate.highest * scale};
}

bool Differ(const Spread& a, const Spread& b) {
  return a.lowest > b.highest || b.lowest > a.highest;
}

std::string VerdictOf(const DollarReport& report, const ReportGroup& group) {
  const bool per_dollar = group.has_prices(report);
  const double scale = per_dollar ? 1e-6 : 1;
  const char* const unit =
      per_dollar ? "million output tokens per USD" : "output tokens per second";
  const std::vector<Contender> contenders = ContendersOf(report, group, per_dollar);
  const Contender& top = contenders.front();
  const std::string start = fmt::format("{}, {}: ", group.title, unit);
  if (contenders.size() == 1)
    return start + TextOf(top, scale) + " stands alone, with nothing to hold it against.";
  std::string alike;
  size_t num_alike = 0;
  for (size_t i = 1; i < contenders.size(); ++i) {
    if (Differ(top.spread, contenders[i].spread)) continue;
    alike += " and " + TextOf(contenders[i], scale);
    ++num_alike;
  }
  if (num_alike > 0) {
    return start + "no difference can be told between " + TextOf(top, scale) + alike +
           ", as their runs overlap" +
           (num_alike + 1 < contenders.size() ? "; all others give less." : ".");
  }
  return start + fmt::format("{} gives the most, {:.2f} times the next, {}.", TextOf(top, scale),
                             top.spread.median / contenders[1].spread.median,
                             TextOf(contenders[1], scale));
}

}  // namespace lamina
