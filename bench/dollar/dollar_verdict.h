// Says which shape of a group gives the most, as far as runs that spread can tell.
#pragma once

#include <string>

#include "bench/dollar/dollar_report.h"

namespace lamina {

// A rate over the runs of a point: output tokens per second, or per dollar.
struct Spread {
  double median = 0, lowest = 0, highest = 0;
};

// Output tokens per second. REQUIRES: point.ok().
Spread RateSpread(const PointResult& point);

// Output tokens per dollar. None without a price. REQUIRES: point.ok().
std::optional<Spread> DollarSpread(const DollarReport& report, const PointResult& point);

// Whether every run of one is above every run of the other. If not, the difference of their medians
// says nothing.
bool Differ(const Spread& a, const Spread& b);

// One sentence about the best points of the group's series: which gives the most tokens per dollar,
// or per second without prices; or that no difference can be told, as their runs overlap.
std::string VerdictOf(const DollarReport& report, const ReportGroup& group);

}  // namespace lamina
