// How much a server's metrics have grown in a run, from what its /metrics said before and after.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace lamina {

// Compares two texts in the Prometheus text format; "" has no metrics. Value type.
class MetricGrowth {
 public:
  MetricGrowth(const std::string& before, const std::string& after);

  // The growth of a metric by its label `node`; under "" that of metrics without this label. Empty
  // if there is no metric of that name.
  std::map<std::string, double> ByNode(const std::string& name) const;

  // The growth of all metrics of that name together.
  double Sum(const std::string& name) const;

 private:
  using Values = std::map<std::pair<std::string, std::string>, double>;  // by name and node
  static Values Parse(const std::string& text);

  Values before_, after_;
};

}  // namespace lamina
