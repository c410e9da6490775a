// Shows what a sweep measured: as JSON, as a page and as text. All numbers on the page are also in
// the JSON, which the page contains.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/dollar/point_run.h"
#include "bench/dollar/sweep.h"

namespace lamina {

// Everything that a report shows.
struct DollarReport {
  Sweep sweep;
  // In the order of PointsOf, up to where the sweep was ended early or still goes on.
  std::vector<PointResult> points;
  size_t num_not_measured = 0;  // points after these
  // When, with what and where was measured.
  std::string date, commit, version, machine, command;
  double seconds = 0;  // that the measurement took
};

// The text with only the last name of each absolute path: the folders of the machine that measured
// are nobody's business.
std::string WithoutFolders(const std::string& text);

// Output tokens for a dollar at the median rate. None without a price. REQUIRES: point.ok().
std::optional<double> TokensPerDollar(const DollarReport& report, const PointResult& point);

// Points of one model, by its label, and one context: what can be drawn into one chart.
struct ReportGroup {
  std::string title;  // "tiny-stories, context 128"
  struct Series {
    std::string name;
    // Indices of measured points, with ascending batch if the sweep lists batches so.
    std::vector<size_t> points;
  };
  std::vector<Series> series;  // those with a measured point

  // Whether any series has a price.
  bool has_prices(const DollarReport& report) const;
};
// Groups and their series come in the order in which points were measured. Points that failed are
// in no group.
std::vector<ReportGroup> GroupsOf(const DollarReport& report);

// Index of the point of the series that gives the most tokens per dollar, or per second if there is
// no price. REQUIRES: the series has points.
size_t BestOf(const DollarReport& report, const ReportGroup::Series& series);

// Sentences that a reader has to know before comparing: what was left out, which numbers cannot be
// had.
std::vector<std::string> NotesOf(const DollarReport& report);

nlohmann::ordered_json ToJson(const DollarReport& report);

// One file that needs no other: tables, SVG charts, and ToJson in <script type="application/json"
// id="raw">. Texts are escaped. Cells with numbers have data-point, an index into "points", and
// data-key, the name of the number there.
std::string ToHtml(const DollarReport& report);

// A table for terminals, and the verdicts.
std::string ToText(const DollarReport& report);

}  // namespace lamina
