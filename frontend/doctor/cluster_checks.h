// What can be said about the machines of a cluster together: each one's own findings, their clocks, and what the network between them does.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/cluster_config.h"
#include "frontend/doctor/finding.h"
#include "frontend/doctor/host_checks.h"

namespace lamina {

// What the cluster wants of one of its hosts.
HostNeeds NeedsOf(const ClusterConfig& config, const std::string& host);

struct ClusterCheckOptions {
  std::string bin_dir;  // where the programs stand, as for `lamina cluster up`
  Clock::duration probe_duration = std::chrono::seconds(2);
  std::function<void(const std::string& line)> progress;
};

// Asks every host (as `lamina cluster up` reaches it), then measures every pair of compute and memory host in both directions.
std::vector<Finding> CheckCluster(const ClusterConfig& config, const ClusterCheckOptions& options);

// Level and words of a measured pair. `link_bits_per_second`: the slower interface's rate, 0 if it does not tell. Exposed for tests.
Finding JudgePair(const std::string& from, const std::string& to, const std::string& fabric, const std::string& refused, double latency_us,
                  double bytes_per_second, double link_bits_per_second);

// The same for the clocks: seconds by which `host` is ahead of this machine, known to within `uncertainty`.
Finding JudgeClock(const std::string& host, double seconds_ahead, double uncertainty);

}  // namespace lamina
