#include "bench/dollar/dollar_charts.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "bench/dollar/dollar_verdict.h"
#include "plan/chart/bar_chart.h"
#include "plan/chart/stacked_bars.h"
#include "plan/chart/svg_chart.h"

namespace lamina {
namespace {

using PointOf = std::function<std::pair<double, double>(const PointResult&)>;
using SpreadOf = std::function<std::optional<Spread>(const PointResult&)>;

std::string LineChart(const DollarReport& report, const ReportGroup& group, Chart chart,
                      const PointOf& point_of) {
  for (const ReportGroup::Series& series : group.series) {
    ChartSeries line;
    line.name = series.name;
    line.marked = true;
    for (const size_t point : series.points) line.points.push_back(point_of(report.points[point]));
    chart.series.push_back(std::move(line));
  }
  return DrawCharts("", {chart}, 1);
}

// A chart over the batch, with error bars from the lowest to the highest run.
std::string SpreadChart(const DollarReport& report, const ReportGroup& group, Chart chart,
                        double scale, const SpreadOf& spread_of) {
  const double none = std::nan("");
  for (const ReportGroup::Series& series : group.series) {
    ChartSeries line;
    line.name = series.name;
    line.marked = true;
    for (const size_t index : series.points) {
      const PointResult& point = report.points[index];
      const Spread spread = spread_of(point).value_or(Spread{none, none, none});
      line.points.emplace_back(point.point.batch, spread.median * scale);
      line.spreads.emplace_back(spread.lowest * scale, spread.highest * scale);
    }
    chart.series.push_back(std::move(line));
  }
  return DrawCharts("", {chart}, 1);
}

Chart Titled(const char* title, const char* x, const char* y, bool over_batch) {
  Chart chart;
  chart.title = title;
  chart.x_label = x;
  chart.y_label = y;
  chart.x_in_powers_of_two = over_batch;
  return chart;
}

}  // namespace

std::vector<std::string> LineChartsOf(const DollarReport& report, const ReportGroup& group) {
  constexpr char kBatch[] = "batch: requests in flight";
  std::vector<std::string> charts;
  charts.push_back(SpreadChart(report, group, Titled("Throughput", kBatch, "output tokens/s", true),
                               1, RateSpread));
  if (group.has_prices(report)) {
    charts.push_back(SpreadChart(
        report, group, Titled("Tokens per dollar", kBatch, "million output tokens/USD", true), 1e-6,
        [&report](const PointResult& point) { return DollarSpread(report, point); }));
  }
  charts.push_back(LineChart(report, group,
                             Titled("Latency and throughput", "output tokens/s",
                                    "median time per output token, ms", false),
                             [](const PointResult& point) {
                               return std::pair<double, double>(point.median().tokens_per_s,
                                                                point.median().figures.tpot.median);
                             }));
  charts.push_back(LineChart(
      report, group, Titled("Time to first token", kBatch, "median TTFT, ms", true),
      [](const PointResult& point) {
        return std::pair<double, double>(point.point.batch, point.median().figures.ttft.median);
      }));
  return charts;
}

std::string DollarBarsOf(const DollarReport& report, const ReportGroup& group) {
  if (!group.has_prices(report)) return "";
  BarChart chart;
  chart.title = "Most tokens per dollar, million output tokens/USD";
  for (const ReportGroup::Series& series : group.series) {
    const PointResult& best = report.points[BestOf(report, series)];
    const std::optional<Spread> spread = DollarSpread(report, best);
    if (!spread) continue;
    const double median = spread->median * 1e-6;
    chart.bars.push_back({series.name, 0, median,
                          fmt::format("{:.3g} at batch {}", median, best.point.batch), false,
                          spread->lowest * 1e-6, spread->highest * 1e-6});
  }
  return ToSvg(chart);
}

std::string BreakdownBarsOf(const DollarReport& report, const ReportGroup& group) {
  StackedBarChart chart;
  chart.title = "Where the time of a step goes, which is the latency of a token: ms";
  chart.part_names = {"slices",  "messages", "sampling", "attention",
                      "network", "waiting",  "manager"};
  chart.unit = "ms";
  for (const ReportGroup::Series& series : group.series) {
    for (const size_t index : series.points) {
      const PointResult& point = report.points[index];
      const std::optional<StepBreakdown>& b = point.median().breakdown;
      if (!b) continue;
      const double manager = b->manager.value_or(0);
      chart.bars.push_back(
          {fmt::format("{}, batch {}", series.name, point.point.batch),
           {b->slices, b->messages, b->sampling, b->attention, b->network, b->waiting, manager},
           fmt::format("{:.3g} ms", b->step + manager)});
    }
  }
  return chart.bars.empty() ? "" : ToSvg(chart);
}

}  // namespace lamina
