#include "bench/dollar/metric_growth.h"

#include <cstdlib>
#include <sstream>
#include <string_view>

namespace lamina {
namespace {

// The value of label `name` in "{a=\"x\",b=\"y\"}"; "" if it is not there. Names of nodes contain
// no quotes, so nothing is unescaped.
std::string LabelIn(std::string_view labels, std::string_view name) {
  const std::string key = std::string(name) + "=\"";
  const size_t at = labels.find(key);
  if (at == std::string_view::npos) return "";
  const size_t begin = at + key.size();
  return std::string(labels.substr(begin, labels.find('"', begin) - begin));
}

}  // namespace

MetricGrowth::MetricGrowth(const std::string& before, const std::string& after)
    : before_(Parse(before)), after_(Parse(after)) {}

// Lines are NAME{LABELS} VALUE. Values that differ in other labels than `node`, as those of a
// server's engines do, are added up.
MetricGrowth::Values MetricGrowth::Parse(const std::string& text) {
  Values values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const size_t name_end = line.find_first_of("{ "), labels_end = line.rfind('}'),
                 space = line.rfind(' ');
    if (name_end == std::string::npos || space == std::string::npos) continue;
    const bool has_labels = labels_end != std::string::npos && labels_end > name_end;
    const std::string labels = has_labels ? line.substr(name_end, labels_end - name_end) : "";
    values[{line.substr(0, name_end), LabelIn(labels, "node")}] +=
        std::strtod(line.c_str() + space, nullptr);
  }
  return values;
}

std::map<std::string, double> MetricGrowth::ByNode(const std::string& name) const {
  std::map<std::string, double> growth;
  for (const auto& [key, value] : after_) {
    if (key.first != name) continue;
    const auto was = before_.find(key);
    growth[key.second] = value - (was != before_.end() ? was->second : 0);
  }
  return growth;
}

double MetricGrowth::Sum(const std::string& name) const {
  double sum = 0;
  for (const auto& [node, growth] : ByNode(name)) sum += growth;
  return sum;
}

}  // namespace lamina
