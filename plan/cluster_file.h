// The cluster YAML of a planned shape, with modelled devices: what `lamina bench modelled` and
// `lamina cluster up` run on one machine.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/cluster_shape.h"
#include "plan/shape_cost.h"

namespace lamina {

struct ClusterFile {
  std::string model_dir;  // paths are made absolute
  std::string catalog;
  PlanOptions options;
  double compute_price = 0, memory_price = 0;  // of one device, per hour
  // Likewise; the modelled network, whose nodes are all alike, has the slower.
  double compute_nic_gb_per_s = 0, memory_nic_gb_per_s = 0;
  int64_t memory_bytes = 0;  // of one memory node
};

// kInvalidArgument: no latency, which a cluster file must have. kUnimplemented: a homogeneous
// shape, as several compute nodes without memory nodes are none of lamina's clusters.
Result<std::string> ToClusterYaml(const Prediction& prediction, const ClusterFile& file);

}  // namespace lamina
