// Serves streams through an engine on a local cluster while faults are done to its nodes or to its
// manager.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bench/recovery/node_fault.h"
#include "bench/recovery/recovery_timeline.h"
#include "manager/cluster_config.h"
#include "manager/local_cluster.h"
#include "model/model_config.h"

namespace lamina {

struct StreamLoad {
  int num_streams = 32;
  int64_t input_tokens = 128;
  int64_t output_tokens = 256;
  float temperature = 0;
  // Each stream asks one request after another for so long. The first ones are shorter by different
  // amounts, so that requests do not all end at the same time. Zero: each stream asks one request,
  // and the run ends when all are answered.
  Clock::duration duration{};

  // Tokens that the stream's n-th request asks for.
  int64_t OutputTokensOf(size_t stream, size_t request) const;
};

// A cluster whose daemons run.
struct ServedCluster {
  ClusterConfig config;  // resolved for `model`
  ModelConfig model;
  LocalCluster* daemons = nullptr;  // borrowed
  // Not "": the cluster's file, and the manager is a process of its own, which reads it.
  std::string manager_file = {};
};

// Connects to the nodes under an engine of its own, or a manager, so that no KV of an earlier run
// is there, and serves. kInvalidArgument if a request does not fit the cluster, or if all streams
// were answered before the last fault; kPeerLost if a daemon ended by itself, or if the engine gave
// up; kTimeout if no stream got a token for two minutes; otherwise as ClusterExecutor::Connect and
// LocalCluster::Restart.
Result<RecoveryTimeline> ServeStreams(const ServedCluster& cluster, const StreamLoad& load,
                                      const std::vector<NodeFault>& faults);

}  // namespace lamina
