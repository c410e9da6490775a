// Estimates how long a sweep will take, from the rooflines of the cost model: for --dry-run, and as
// the first guess of the time that is left.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/worker_team.h"
#include "bench/dollar/sweep.h"
#include "cost/device_catalog.h"

namespace lamina {

// Measures this machine within a few seconds when a node is a CPU. Thread: owner. Borrows the
// sweep.
class ExpectedTime {
 public:
  explicit ExpectedTime(const Sweep& sweep);
  ~ExpectedTime();

  // Seconds of a whole point, its start included, without what the runtime and the network add.
  // None for a server elsewhere, or for a point that cannot be measured.
  std::optional<double> Seconds(const SweepPoint& point);

 private:
  struct Model;
  // Loaded once for each path.
  Result<const Model*> ModelAt(const std::string& path);
  Result<DeviceSpec> DeviceOf(const NodeConfig& node, const ClusterConfig& config,
                              const Model& model);
  Result<double> Estimate(const SweepPoint& point);

  const Sweep& sweep_;
  // Models that have been loaded, by path.
  std::map<std::string, std::unique_ptr<const Model>> models_;
  // This machine, once it was measured.
  std::optional<DeviceSpec> machine_;
};

// "40 s", "3 min 20 s", "2 h 5 min".
std::string DurationText(double seconds);

}  // namespace lamina
