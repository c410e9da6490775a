// Which cluster gives the most tokens per dollar for a model and a workload: every shape from the
// catalog's devices, each at its best schedule.
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

// What may be bought. Empty lists: every device of the catalog that has a price.
struct ShapeLimits {
  std::vector<std::string> compute_devices, memory_devices;
  int max_replicas = 4;
  int max_ranks = 8;
  int max_memory_nodes = 32;
  size_t keep = 20;  // of each kind, the best
};

struct Plan {
  // The best of each pair of devices, most tokens per dollar first.
  std::vector<Prediction> disaggregated;
  std::vector<Prediction> homogeneous;  // the best of each device, likewise
  std::vector<std::string> alone;       // devices that were tried as homogeneous clusters
  std::vector<std::string> left_out;    // devices, and why: "H20: no price to buy"
  int64_t num_shapes = 0;               // that were looked at

  // The best of all; null: nothing serves this.
  const Prediction* best() const;
  // A sentence: disaggregate or not, what it gains, and which devices were considered.
  std::string Verdict() const;
};

// Memory devices that can hold the model are tried alone too. kNotFound: a device that the catalog
// does not have. kInvalidArgument: the model, a device's profile, a device that was asked for has
// no price, or a rate for which every cluster is needed a million times.
Result<Plan> MakePlan(const ModelConfig& model, const PlanLoad& load, const DeviceCatalog& catalog,
                      const ShapeLimits& limits, const PlanOptions& options);

// One shape, for whoever has a cluster already. kOutOfSpace: the weights, or the longest request,
// do not fit; or no schedule keeps the SLO.
Result<Prediction> PredictShape(const ModelConfig& model, const PlanLoad& load,
                                const DeviceCatalog& catalog, const ClusterShape& shape,
                                const PlanOptions& options);

}  // namespace lamina
