// Which cluster gives the most tokens per dollar for a model and a workload. Every shape of the
// catalog's devices is tried, each at its best schedule (plan/shape_cost.h). docs/plan.md shows
// what comes out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/device_catalog.h"
#include "model/model_config.h"
#include "plan/cluster_shape.h"
#include "plan/plan_load.h"
#include "plan/shape_cost.h"

namespace lamina {

// What may be bought. An empty list of devices stands for every device of the catalog that has a
// price.
struct ShapeLimits {
  std::vector<std::string> compute_devices, memory_devices;
  int max_replicas = 4;
  int max_ranks = 8;
  int max_memory_nodes = 32;
  // How many predictions a plan keeps of each kind: the best ones.
  size_t keep = 20;
};

// A value.
struct Plan {
  // The best shape of each pair of devices, most tokens per dollar first.
  std::vector<Prediction> disaggregated;
  // The best shape of each device without memory nodes, most tokens per dollar first.
  std::vector<Prediction> homogeneous;
  // Devices that were tried as homogeneous clusters.
  std::vector<std::string> alone;
  // Devices that were not considered, and why: "H20: no price to buy".
  std::vector<std::string> left_out;
  // How many shapes were looked at.
  int64_t num_shapes = 0;

  // The best of both lists. Null if nothing serves the workload. Points into the plan.
  const Prediction* best() const;
  // A sentence: whether to disaggregate, what that gains, and which devices were considered.
  std::string Verdict() const;
};

// Compares all shapes within the limits. Homogeneous clusters are made of memory devices too, where
// the model fits. kNotFound for a device that the catalog does not have. kInvalidArgument for a
// model that cannot be split, a device whose profile does not fit the model, a device that was
// asked for by name and has no price, or a rate for which every cluster would be needed a million
// times. A plan in which nothing serves the workload is no error.
Result<Plan> MakePlan(const ModelConfig& model, const PlanLoad& load, const DeviceCatalog& catalog,
                      const ShapeLimits& limits, const PlanOptions& options);

// The same for one shape, of a cluster that exists or is thought of. kNotFound for a device that
// the catalog does not have, kInvalidArgument if the model cannot be split among the ranks.
// kOutOfSpace if the weights or the longest request do not fit, no schedule keeps the limits of
// time, or the rate is far too high.
Result<Prediction> PredictShape(const ModelConfig& model, const PlanLoad& load,
                                const DeviceCatalog& catalog, const ClusterShape& shape,
                                const PlanOptions& options);

}  // namespace lamina
