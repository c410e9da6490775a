// What can be said about the machines of a cluster together: each one's own findings, their clocks,
// and what the network between them does.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/host_checks.h"
#include "manager/cluster_config.h"

namespace lamina {

// What the cluster wants of one of its hosts.
HostNeeds NeedsOf(const ClusterConfig& config, const std::string& host);

struct ClusterCheckOptions {
  std::string bin_dir;  // where the programs stand, as for `lamina cluster up`
  Clock::duration probe_duration = std::chrono::seconds(2);
  std::function<void(const std::string& line)> progress;
};

// Asks every host (as `lamina cluster up` reaches it), then measures every pair of hosts that will
// exchange data, in both directions.
std::vector<Finding> CheckCluster(const ClusterConfig& config, const ClusterCheckOptions& options);

// Those pairs: compute and memory hosts, which may be one host, and compute hosts among themselves.
// Each once. Exposed for tests.
std::vector<std::pair<std::string, std::string>> PairsOf(const ClusterConfig& config);

// A failure for each host whose secret is not the first one's. `values`: of the findings "secret",
// by host; 0 is not known. Exposed for tests.
std::vector<Finding> JudgeSecrets(const std::vector<std::pair<std::string, int64_t>>& values);

// A port in use that the cluster itself listens at is right. `own`: such addresses. Exposed for
// tests.
void ExcuseOwnPorts(const std::set<std::string>& own, std::vector<Finding>& findings);

// What was measured from one host to another.
struct MeasuredPair {
  std::string from, to;
  std::string fabric, through, refused;  // as in ProbeResult
  double latency_us = 0;
  double bytes_per_second = 0;
  double link_bits_per_second = 0;  // the slower interface's rate, 0 if it does not tell
};

// Its level and words. Exposed for tests.
Finding JudgePair(const MeasuredPair& pair);

// The same for the clocks: seconds by which `host` is ahead of this machine, known to within
// `uncertainty`.
Finding JudgeClock(const std::string& host, double seconds_ahead, double uncertainty);

}  // namespace lamina
