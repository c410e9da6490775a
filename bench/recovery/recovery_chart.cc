#include "bench/recovery/recovery_chart.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "plan/chart/svg_chart.h"

namespace lamina {
namespace {

constexpr double kChartWidth = 960;  // pixels
constexpr size_t kNumBins = 120;     // of the curve of tokens per second

using ChartPoints = std::vector<std::pair<double, double>>;

// Seconds since the run began, to the end at most: a token that comes a moment later shall not make
// the axis a tick longer.
class ChartTime {
 public:
  explicit ChartTime(const RecoveryTimeline& run)
      : start_(run.start), last_(std::floor(100 * SecondsBetween(run.start, run.end)) / 100) {}

  double operator()(TimePoint time) const { return std::min(SecondsBetween(start_, time), last_); }
  double last() const { return last_; }

 private:
  TimePoint start_;
  double last_;
};

std::vector<ChartMark> MarksOf(const RecoveryTimeline& run, const RecoveryFigures& figures,
                               const ChartTime& time) {
  std::vector<ChartMark> marks;
  for (const FaultRecord& fault : run.faults)
    marks.push_back({time(fault.at), true, fault.fault.Name()});
  for (const FaultFigures& fault : figures.faults) {
    if (fault.num_resumed > 0)
      marks.push_back(
          {time(fault.recovered), true, "recovered from " + run.faults[fault.fault].fault.Name()});
  }
  return marks;
}

Chart RateOverTime(const RecoveryTimeline& run, const ChartTime& time) {
  std::vector<double> counts(kNumBins);
  const double bin_s = std::max(time.last(), 1e-3) / static_cast<double>(kNumBins);
  for (const StreamRecord& stream : run.streams) {
    for (const StreamRequest& request : stream.requests) {
      for (const TimePoint token : request.times)
        ++counts[std::min(static_cast<size_t>(time(token) / bin_s), kNumBins - 1)];
    }
  }
  Chart chart;
  chart.title = "Output tokens per second";
  chart.x_label = "seconds since the streams began";
  chart.y_label = "tokens/s";
  ChartSeries& rate = chart.series.emplace_back();
  for (size_t i = 0; i < kNumBins; ++i)
    rate.points.emplace_back((static_cast<double>(i) + 0.5) * bin_s, counts[i] / bin_s);
  return chart;
}

// The parts of a row in which a stream got tokens, and in which it paused.
struct StreamRow {
  ChartPoints running, pausing;
};

void AddPart(ChartPoints& parts, double from, double to, double row) {
  parts.emplace_back(from, row);
  parts.emplace_back(to, row);
}

void AddRequest(const StreamRequest& request, double pause_ms, const ChartTime& time, double row,
                StreamRow& parts) {
  if (request.times.empty()) return;
  TimePoint from = request.times.front();
  for (size_t i = 1; i < request.times.size(); ++i) {
    const TimePoint before = request.times[i - 1], now = request.times[i];
    if (1e3 * SecondsBetween(before, now) <= pause_ms) continue;
    AddPart(parts.running, time(from), time(before), row);
    AddPart(parts.pausing, time(before), time(now), row);
    from = now;
  }
  AddPart(parts.running, time(from), time(request.times.back()), row);
}

// Those that did not go on pause until they failed or the run ended.
void AddLostEnds(const RecoveryTimeline& run, const FaultFigures& fault, const ChartTime& time,
                 const std::vector<double>& rows, StreamRow& parts) {
  for (const Interruption& interruption : fault.interruptions) {
    if (interruption.resumed) continue;
    const StreamRequest& request = run.streams[interruption.stream].requests[interruption.request];
    const TimePoint from = request.times.empty() ? request.submitted : request.times.back();
    AddPart(parts.pausing, time(from), time(request.ended.value_or(run.end)),
            rows[interruption.stream]);
  }
}

// The row of each stream, counted from 1 at the bottom.
std::vector<double> RowsOf(const RecoveryTimeline& run, const RecoveryFigures& figures) {
  std::vector<double> rows(run.streams.size());
  double next = 1;
  for (const bool interrupted : {false, true}) {
    for (size_t stream = 0; stream < rows.size(); ++stream) {
      if (figures.interrupted.contains(stream) == interrupted) rows[stream] = next++;
    }
  }
  return rows;
}

Chart StreamsOverTime(const RecoveryTimeline& run, const RecoveryFigures& figures,
                      const ChartTime& time) {
  const std::vector<double> rows = RowsOf(run, figures);
  StreamRow parts;
  for (size_t stream = 0; stream < rows.size(); ++stream) {
    for (const StreamRequest& request : run.streams[stream].requests)
      AddRequest(request, figures.pause_ms, time, rows[stream], parts);
  }
  for (const FaultFigures& fault : figures.faults) AddLostEnds(run, fault, time, rows, parts);
  Chart chart;
  chart.title = "Streams";
  chart.x_label = "seconds since the streams began";
  chart.y_label = "streams, interrupted ones on top";
  ChartSeries& running = chart.series.emplace_back();
  running.name = "gets tokens";
  running.segments = true;
  running.points = std::move(parts.running);
  ChartSeries& pausing = chart.series.emplace_back();
  pausing.name = "pauses";
  pausing.segments = true;
  pausing.points = std::move(parts.pausing);
  return chart;
}

}  // namespace

std::string DrawRecovery(const std::string& heading, const RecoveryTimeline& run,
                         const RecoveryFigures& figures) {
  const ChartTime time(run);
  Chart rate = RateOverTime(run, time), streams = StreamsOverTime(run, figures, time);
  rate.marks = MarksOf(run, figures, time);
  streams.marks = rate.marks;
  // Words would stand on the rows.
  for (ChartMark& mark : streams.marks) mark.label.clear();
  return DrawCharts(heading, {rate, streams}, 1, kChartWidth);
}

}  // namespace lamina
