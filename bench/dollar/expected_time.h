// How long a sweep will take, from the rooflines of the cost model: for --dry-run and the first
// guess of what is left.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/worker_team.h"
#include "bench/dollar/sweep.h"
#include "cost/device_catalog.h"

namespace lamina {

// Thread: owner. Measures this machine when the first node is a CPU, within a few seconds.
class ExpectedTime {
 public:
  explicit ExpectedTime(const Sweep& sweep);
  ~ExpectedTime();

  // Of a whole point, its start included; what the runtime and the network add is not in it. None:
  // a server elsewhere, or a point that cannot be measured.
  std::optional<double> Seconds(const SweepPoint& point);

 private:
  struct Model;
  Result<const Model*> ModelAt(const std::string& path);
  Result<DeviceSpec> DeviceOf(const NodeConfig& node, const ClusterConfig& config,
                              const Model& model);
  Result<double> Estimate(const SweepPoint& point);

  const Sweep& sweep_;
  std::map<std::string, std::unique_ptr<const Model>> models_;
  std::optional<DeviceSpec> machine_;
};

// "40 s", "3 min 20 s", "2 h 5 min".
std::string DurationText(double seconds);

}  // namespace lamina
