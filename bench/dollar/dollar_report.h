// What a sweep showed: as JSON, as a page and as text. All numbers on the page are in the JSON,
// which is in the page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/dollar/point_run.h"
#include "bench/dollar/sweep.h"

namespace lamina {

struct DollarReport {
  Sweep sweep;
  // As PointsOf, up to where it was ended early or goes on.
  std::vector<PointResult> points;
  size_t num_not_measured = 0;                          // points behind them
  std::string date, commit, version, machine, command;  // of the measurement
  double seconds = 0;                                   // that it took
};

// The text with only the last name of each absolute path in it: folders of the machine that
// measured are nobody's business.
std::string WithoutFolders(const std::string& text);

// Output tokens for a dollar at the median rate; none without a price. REQUIRES: point.ok().
std::optional<double> TokensPerDollar(const DollarReport& report, const PointResult& point);

// Points of one model, by its label, and context: what can be drawn into one chart.
struct ReportGroup {
  std::string title;  // "tiny-stories, context 128"
  struct Series {
    std::string name;
    std::vector<size_t> points;  // indices, batch ascending as in the sweep; measured ones only
  };
  std::vector<Series> series;  // those with a measured point

  bool has_prices(const DollarReport& report) const;
};
std::vector<ReportGroup> GroupsOf(const DollarReport& report);

// The point of the series that gives the most tokens per dollar, or per second if there is no
// price. REQUIRES: the series has points.
size_t BestOf(const DollarReport& report, const ReportGroup::Series& series);

// What a reader has to know before comparing: what was left out, which numbers cannot be had.
std::vector<std::string> NotesOf(const DollarReport& report);

nlohmann::ordered_json ToJson(const DollarReport& report);

// One file that needs nothing else: tables, SVG charts, and ToJson in <script
// type="application/json" id="raw">. Texts are escaped. Cells with numbers have data-point, an
// index into "points", and data-key, the name there.
std::string ToHtml(const DollarReport& report);

// A table for terminals, and the verdicts.
std::string ToText(const DollarReport& report);

}  // namespace lamina
