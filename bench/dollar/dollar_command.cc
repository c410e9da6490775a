#include "bench/dollar/dollar_command.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "base/version.h"
#include "bench/commit.h"  // generated
#include "bench/dollar/dollar_charts.h"
#include "bench/dollar/dollar_report.h"
#include "bench/dollar/expected_time.h"
#include "bench/report.h"
#include "bench/serve/load_run.h"
#include "cli/command_line.h"
#include "cli/commands.h"

namespace lamina {
namespace {

struct DollarOptions {
  std::string sweep;
  std::string html = "dollar.html";
  std::string svg;
  bool dry_run = false;
  bool json = false;
};

std::string NameOf(const Sweep& sweep, const SweepPoint& point) {
  return fmt::format("{}, context {}, batch {}", SeriesName(sweep, point), point.context,
                     point.batch);
}

// Estimates the time that is left: what was expected, scaled by how long the points that are done
// took. A point that cannot be estimated is taken for the mean of the others.
class TimeLeft {
 public:
  explicit TimeLeft(std::vector<std::optional<double>> expected) : expected_(std::move(expected)) {
    double sum = 0, known = 0;
    for (const std::optional<double>& seconds : expected_) {
      if (!seconds) continue;
      sum += *seconds;
      ++known;
    }
    mean_ = known > 0 ? sum / known : kUnknownSeconds;
  }

  void Done(double seconds) {
    guessed_ += Of(num_done_++);
    taken_ += seconds;
  }

  double Seconds() const {
    double left = 0;
    for (size_t i = num_done_; i < expected_.size(); ++i) left += Of(i);
    return guessed_ > 0 ? left * taken_ / guessed_ : left;
  }

 private:
  static constexpr double kUnknownSeconds = 30;

  double Of(size_t point) const { return expected_[point].value_or(mean_); }

  const std::vector<std::optional<double>> expected_;
  double mean_ = 0, guessed_ = 0, taken_ = 0;
  size_t num_done_ = 0;
};

std::vector<std::optional<double>> Expect(const Sweep& sweep,
                                          const std::vector<SweepPoint>& points) {
  ExpectedTime expected(sweep);
  std::vector<std::optional<double>> seconds;
  for (const SweepPoint& point : points) seconds.push_back(expected.Seconds(point));
  return seconds;
}

void PrintPlan(const Sweep& sweep, const std::vector<SweepPoint>& points) {
  const std::vector<std::optional<double>> expected = Expect(sweep, points);
  for (size_t i = 0; i < points.size(); ++i) {
    const SweepShape& shape = sweep.shapes[points[i].shape];
    std::cout << fmt::format(
        "{:<56} {:>16}  {}\n", NameOf(sweep, points[i]),
        shape.prices ? fmt::format("{:.3f} USD/h", shape.prices->per_hour()) : "no price",
        expected[i] ? "about " + DurationText(*expected[i]) : "time unknown");
  }
  std::cout << fmt::format(
      "{} points, {} runs each: about {} and what the runtime and the network add\n", points.size(),
      sweep.repeats, DurationText(TimeLeft(expected).Seconds()));
}

volatile std::sig_atomic_t stop_asked = 0;

// SIGINT or SIGTERM ends the sweep with what was measured so far; a second one ends the process.
void AwaitInterrupt() {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::signal(signal, [](int number) {
      stop_asked = 1;
      std::signal(number, SIG_DFL);
    });
  }
}

// Writes the page again and again while it grows, so that little is lost if the machine fails: not
// into pipes, and not if writing takes too large a share of the time.
class GrowingPage {
 public:
  explicit GrowingPage(std::string path) : path_(std::move(path)) {}

  void Write(const DollarReport& report) {
    constexpr double kShare = 0.02;  // of the time
    std::error_code ignored;
    const bool is_file = !std::filesystem::exists(path_, ignored) ||
                         std::filesystem::is_regular_file(path_, ignored);
    if (!is_file || SecondsSince(written_) * kShare < took_) return;
    const TimePoint start = Clock::now();
    if (const Status status = WriteOutput(path_, ToHtml(report)); !status.ok())
      std::cerr << "    " << status.message() << '\n';
    written_ = Clock::now();
    took_ = SecondsSince(start);
  }

 private:
  const std::string path_;
  TimePoint written_;
  double took_ = 0;
};

// Prints a line when the point begins and one when it is done.
PointResult MeasureWithProgress(const Sweep& sweep, const SweepPoint& point,
                                const std::string& position, TimeLeft& left) {
  std::cerr << fmt::format("{} {}; about {} left\n", position, NameOf(sweep, point),
                           DurationText(left.Seconds()))
            << std::flush;
  PointResult result = MeasurePoint(sweep, point, [] { return stop_asked != 0; });
  if (result.interrupted) {
    std::cerr << "\ninterrupted: the report has what was measured so far; once more ends at once\n"
              << std::flush;
    return result;
  }
  left.Done(result.seconds);
  std::cerr
      << (result.ok()
              ? fmt::format(
                    "    {:.1f} output tokens/s ({:.1f} to {:.1f}), {:.2f} ms per token, in {}\n",
                    result.median().tokens_per_s, result.lowest(), result.highest(),
                    result.median().figures.tpot.median, DurationText(result.seconds))
              : "    not measured: " + result.error + "\n")
      << std::flush;
  return result;
}

// The picture of the first group for documents that are no page: where the time of a step goes or,
// if no endpoint tells, throughput over batch.
std::string FirstPicture(const DollarReport& report) {
  const std::vector<ReportGroup> groups = GroupsOf(report);
  if (groups.empty()) return "";
  const std::string bars = BreakdownBarsOf(report, groups.front());
  return bars.empty() ? LineChartsOf(report, groups.front()).front() : bars;
}

void MeasureAll(const std::vector<SweepPoint>& points, GrowingPage page, DollarReport& report) {
  const TimePoint start = Clock::now();
  TimeLeft left(Expect(report.sweep, points));
  report.num_not_measured = points.size();
  for (size_t i = 0; i < points.size() && stop_asked == 0; ++i) {
    PointResult result = MeasureWithProgress(report.sweep, points[i],
                                             fmt::format("[{}/{}]", i + 1, points.size()), left);
    if (result.interrupted) break;
    report.points.push_back(std::move(result));
    --report.num_not_measured;
    report.seconds = SecondsSince(start);
    if (report.num_not_measured > 0) page.Write(report);
  }
}

Status BenchDollar(const DollarOptions& options) {
  DollarReport report;
  LAMINA_ASSIGN_OR_RETURN(report.sweep, Sweep::Load(options.sweep));
  const std::vector<SweepPoint> points = PointsOf(report.sweep);
  if (options.dry_run) {
    PrintPlan(report.sweep, points);
    return OkStatus();
  }
  LAMINA_RETURN_IF_ERROR(CheckWritable({options.html, options.svg}));
  AllowManyOpenFiles();
  report.date = fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(std::time(nullptr)));
  report.commit = kCommit;
  report.version = kVersion;
  report.machine = MachineName();
  report.command = CommandLine();
  AwaitInterrupt();
  MeasureAll(points, GrowingPage(options.html), report);
  if (report.num_not_measured > 0) SetExitStatus(kExitInterrupted);
  if (report.points.empty()) {
    std::cerr << "no point was measured, and no report written\n";
    return OkStatus();
  }
  // Before the files: a disk may be full by now.
  std::cout << (options.json ? ToJson(report).dump(-1, ' ', false,
                                                   nlohmann::json::error_handler_t::replace) +
                                   "\n"
                             : ToText(report))
            << std::flush;
  LAMINA_RETURN_IF_ERROR(
      WriteOutputs({{options.html, ToHtml(report)}, {options.svg, FirstPicture(report)}}));
  std::cerr << "The report is in " << options.html << '\n';
  const bool any = std::any_of(report.points.begin(), report.points.end(),
                               [](const PointResult& point) { return point.ok(); });
  if (any || report.num_not_measured > 0) return OkStatus();
  return PeerLost("no point could be measured; the first: " + report.points.front().error);
}

}  // namespace

void RegisterBenchDollar(CLI::App& app) {
  auto options = std::make_shared<DollarOptions>();
  CLI::App* command = app.add_subcommand(
      "dollar", "Tokens per dollar of several ways to serve a model, as one report in HTML");
  command->add_option("SWEEP", options->sweep, "YAML of shapes and loads, see docs/bench-dollar.md")
      ->required();
  command->add_option("--html", options->html, "write the report there")->capture_default_str();
  command->add_option("--svg", options->svg,
                      "write a picture of where the time of a step goes there");
  command->add_flag("--dry-run", options->dry_run,
                    "only print the points and the time that they are expected to take");
  command->add_flag("--json", options->json, "everything as JSON on stdout instead of a table");
  command->footer(
      "Examples:\n"
      "  lamina bench dollar configs/dollar-local.yaml --html report.html\n"
      "  lamina bench dollar configs/dollar-local.yaml --dry-run");
  OnRun(*command, "lamina bench dollar", [options] { return BenchDollar(*options); });
}

}  // namespace lamina
