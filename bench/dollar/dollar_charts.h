// Draws the pictures of a report, for one model and context at a time.
#pragma once

#include <string>
#include <vector>

#include "bench/dollar/dollar_report.h"

namespace lamina {

// SVG documents whose lines have a mark for each measured point of the group: throughput over batch
// and, if there are prices, tokens per dollar over batch, both with error bars from the lowest to
// the highest run; time per token over throughput; time to first token over batch.
std::vector<std::string> LineChartsOf(const DollarReport& report, const ReportGroup& group);

// One bar with its error bar for each series: its best point by tokens per dollar. "" without
// prices.
std::string DollarBarsOf(const DollarReport& report, const ReportGroup& group);

// One bar for each point whose endpoint tells where the time of a step goes. "" if none does.
std::string BreakdownBarsOf(const DollarReport& report, const ReportGroup& group);

}  // namespace lamina
