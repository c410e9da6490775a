// Writes a planned shape as a cluster file with modelled devices, which `lamina bench modelled` and
// `lamina cluster up` run on one machine (`lamina plan --emit`).
#pragma once

#include <string>

#include "base/status.h"
#include "plan/cluster_shape.h"
#include "plan/shape_cost.h"

namespace lamina {

// What a cluster file says besides the prediction.
struct ClusterFile {
  // Paths; the file has them as absolute ones.
  std::string model_dir;
  std::string catalog;
  PlanOptions options;
  // Dollars per hour for one device of each kind.
  double compute_price = 0, memory_price = 0;
  // NIC of one node of each kind. All nodes of a modelled network are alike: the file gives them
  // the slower NIC.
  double compute_nic_gb_per_s = 0, memory_nic_gb_per_s = 0;
  // The KV cache of one memory node, or of the compute node of a homogeneous shape.
  int64_t memory_bytes = 0;
};

// The text of the file. kInvalidArgument if there are memory nodes and the latency is not above 0,
// as a network in a cluster file needs one. kUnimplemented for a homogeneous shape of several
// devices.
Result<std::string> ToClusterYaml(const Prediction& prediction, const ClusterFile& file);

}  // namespace lamina
