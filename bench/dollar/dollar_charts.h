// The pictures of a report, one model and context at a time.
#pragma once

#include <string>
#include <vector>

#include "bench/dollar/dollar_report.h"

namespace lamina {

// SVG documents. Lines have a mark for each measured point of the group: throughput over batch;
// tokens per dollar over batch, if there are prices; both with error bars from the lowest to the
// highest run; time per token over throughput; time to first token over batch.
std::vector<std::string> LineChartsOf(const DollarReport& report, const ReportGroup& group);

// The best point of each series by tokens per dollar, a bar each with its error bar; "" without
// prices.
std::string DollarBarsOf(const DollarReport& report, const ReportGroup& group);

// Where the time of a step went, a bar for each point whose endpoint tells; "" if none does.
std::string BreakdownBarsOf(const DollarReport& report, const ReportGroup& group);

}  // namespace lamina
