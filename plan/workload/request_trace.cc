#include "plan/workload/request_trace.h"

#include <cmath>

namespace lamina {
namespace {

// The standard deviation of the gaps over `mean`. REQUIRES: at least two requests; mean > 0.
double CvOfGaps(const std::vector<TraceRequest>& requests, double mean) {
  double squares = 0;
  for (size_t i = 1; i < requests.size(); ++i) {
    const double gap = requests[i].arrival_seconds - requests[i - 1].arrival_seconds;
    squares += (gap - mean) * (gap - mean);
  }
  return std::sqrt(squares / static_cast<double>(requests.size() - 1)) / mean;
}

}  // namespace

TraceSummary Summarize(const RequestTrace& trace) {
  TraceSummary summary;
  if (trace.requests.empty()) return summary;
  const auto count = static_cast<double>(trace.requests.size());
  for (const TraceRequest& request : trace.requests) {
    summary.mean_input_tokens += static_cast<double>(request.input_tokens) / count;
    summary.mean_output_tokens += static_cast<double>(request.output_tokens) / count;
  }
  const double span =
      trace.requests.back().arrival_seconds - trace.requests.front().arrival_seconds;
  if (span <= 0) return summary;
  summary.requests_per_second = (count - 1) / span;
  summary.gap_cv = CvOfGaps(trace.requests, span / (count - 1));
  return summary;
}

}  // namespace lamina
