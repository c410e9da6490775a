// How much a server's metrics grew in a run, from what its /metrics say before and after.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace lamina {

// Of texts in the Prometheus format; "" has no metrics.
class MetricGrowth {
 public:
  MetricGrowth(const std::string& before, const std::string& after);

  // By the label `node`; "" is what has none. Empty: there is no such metric.
  std::map<std::string, double> ByNode(const std::string& name) const;

  double Sum(const std::string& name) const;  // over all that have the name

 private:
  using Values = std::map<std::pair<std::string, std::string>, double>;  // by metric and node
  static Values Parse(const std::string& text);

  Values before_, after_;
};

}  // namespace lamina
