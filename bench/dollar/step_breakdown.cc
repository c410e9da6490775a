#include "bench/dollar/step_breakdown.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

namespace lamina {
namespace {

// Values by metric and node; "" for metrics that are not of a node.
using MetricValues = std::map<std::pair<std::string, std::string>, double>;

// The value of label `name` in "{a=\"x\",b=\"y\"}"; "" if it is not there. Names of nodes have no quotes.
std::string LabelIn(std::string_view labels, std::string_view name) {
  const std::string key = std::string(name) + "=\"";
  const size_t at = labels.find(key);
  if (at == std::string_view::npos) return "";
  const size_t begin = at + key.size();
  return std::string(labels.substr(begin, labels.find('"', begin) - begin));
}

// Lines of the Prometheus text format: NAME{LABELS} VALUE.
MetricValues ParseMetrics(const std::string& text) {
  MetricValues values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("lamina:")) continue;
    const size_t name_end = line.find_first_of("{ "), labels_end = line.rfind('}'), space = line.rfind(' ');
    if (name_end == std::string::npos || space == std::string::npos) continue;
    const std::string labels = labels_end != std::string::npos ? line.substr(name_end, labels_end - name_end) : "";
    values[{line.substr(0, name_end), LabelIn(labels, "node")}] = std::strtod(line.c_str() + space, nullptr);
  }
  return values;
}

class MetricGrowth {
 public:
  MetricGrowth(const std::string& before, const std::string& after) : before_(ParseMetrics(before)), after_(ParseMetrics(after)) {}

  std::map<std::string, double> ByNode(const std::string& name) const {
    std::map<std::string, double> growth;
    for (const auto& [key, value] : after_) {
      if (key.first != name) continue;
      const auto was = before_.find(key);
      growth[key.second] = value - (was != before_.end() ? was->second : 0);
    }
    return growth;
  }

  double Sum(const std::string& name) const {
    double sum = 0;
    for (const auto& [node, growth] : ByNode(name)) sum += growth;
    return sum;
  }

 private:
  MetricValues before_, after_;
};

}  // namespace

std::optional<StepBreakdown> BreakdownBetween(const std::string& metrics_before, const std::string& metrics_after, const RunTimes& run) {
  const MetricGrowth growth(metrics_before, metrics_after);
  const double steps = growth.Sum("lamina:step_seconds_count");
  if (!(steps > 0)) return std::nullopt;
  const double ms = 1e3 / steps, rank_ms = ms / run.tensor_parallel_size;
  StepBreakdown out;
  out.step = ms * growth.Sum("lamina:step_seconds_sum");
  out.slices = rank_ms * growth.Sum("lamina:slice_seconds_total");
  out.sampling = rank_ms * growth.Sum("lamina:sample_seconds_total");
  const double post = rank_ms * growth.Sum("lamina:post_seconds_total");
  const std::map<std::string, double> attention = growth.ByNode("lamina:attention_seconds_total");
  const auto slowest =
      std::max_element(attention.begin(), attention.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  double wire = 0;
  if (slowest == attention.end()) {
    out.attention = post;
  } else {
    out.messages = post + rank_ms * growth.Sum("lamina:take_seconds_total");
    out.attention = ms * slowest->second;
    wire = ms * (growth.ByNode("lamina:q_wire_seconds_total")[slowest->first] +
                 growth.ByNode("lamina:output_wire_seconds_total")[slowest->first]);
  }
  // What of attention and wires happened beside something else is none of the step's time.
  double rest = std::max(0.0, out.step - out.slices - out.messages - out.sampling);
  out.attention = std::min(out.attention, rest);
  rest -= out.attention;
  out.network = std::min(wire, rest);
  out.waiting = rest - out.network;
  if (run.num_batches > 0) out.manager = std::max(0.0, ms * run.seconds * run.num_batches - out.step);
  return out;
}

}  // namespace lamina
