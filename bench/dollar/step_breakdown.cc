#include "bench/dollar/step_breakdown.h"

#include <algorithm>
#include <map>

#include "bench/dollar/metric_growth.h"

namespace lamina {
std::optional<StepBreakdown> BreakdownBetween(const std::string& metrics_before,
                                              const std::string& metrics_after,
                                              const RunTimes& run) {
  const MetricGrowth growth(metrics_before, metrics_after);
  const double steps = growth.Sum("lamina:step_seconds_count");
  if (!(steps > 0)) return std::nullopt;
  // Each rank of a stage counts its own seconds of the same work.
  const double ms = 1e3 / steps, rank_ms = ms / run.tensor_parallel_size;
  StepBreakdown out;
  out.step = ms * growth.Sum("lamina:step_seconds_sum");
  out.slices = rank_ms * growth.Sum("lamina:slice_seconds_total");
  out.sampling = rank_ms * growth.Sum("lamina:sample_seconds_total");
  const double post = rank_ms * growth.Sum("lamina:post_seconds_total");
  const std::map<std::string, double> attention = growth.ByNode("lamina:attention_seconds_total");
  const auto slowest =
      std::max_element(attention.begin(), attention.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  double wire = 0;
  // Without memory nodes "posting" is the attention itself.
  if (slowest == attention.end()) {
    out.attention = post;
  } else {
    out.messages = post + rank_ms * growth.Sum("lamina:take_seconds_total");
    out.attention = ms * slowest->second;
    wire = ms * (growth.ByNode("lamina:q_wire_seconds_total")[slowest->first] +
                 growth.ByNode("lamina:output_wire_seconds_total")[slowest->first]);
  }
  // What of attention and network happened beside something else is not part of the step's time.
  double rest = std::max(0.0, out.step - out.slices - out.messages - out.sampling);
  out.attention = std::min(out.attention, rest);
  rest -= out.attention;
  out.network = std::min(wire, rest);
  out.waiting = rest - out.network;
  if (run.num_batches > 0)
    out.manager = std::max(0.0, ms * run.seconds * run.num_batches - out.step);
  return out;
}

std::optional<double> CachedShareBetween(const std::string& metrics_before,
                                         const std::string& metrics_after) {
  const MetricGrowth growth(metrics_before, metrics_after);
  const double prompts = growth.Sum("vllm:prefix_cache_queries_total");
  if (!(prompts > 0)) return std::nullopt;
  return growth.Sum("vllm:prefix_cache_hits_total") / prompts;
}

}  // namespace lamina
