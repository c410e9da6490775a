// How long a device of the catalog takes for the slices of a model, by the number of rows: the
// times of the cost model (cost/cost_model.h), each computed once.
#pragma once

#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "cost/device_catalog.h"
#include "plan/simulate/cluster_model.h"

namespace lamina {

// A slice or, with tensor parallelism, what of it lies between two all-reduces.
struct SlicePart {
  Clock::duration time{};
  // The share of `time` after q is complete.
  Clock::duration behind_q{};
  bool has_q = false;
  // Elements of each row that the ranks add up behind this part; 0: no all-reduce follows.
  int64_t sum_elements = 0;
};

// Thread: owner. Borrows the cluster and the device.
class SliceTimes {
 public:
  SliceTimes(const ClusterModel& cluster, const DeviceSpec& device);

  // The parts of a slice for so many rows. The reference is valid as long as this object.
  const std::vector<SlicePart>& Of(int slice, int64_t rows);

  // All slices of one step. The head runs for `sampled_rows` rows only.
  double StepSeconds(int64_t rows, int64_t sampled_rows);

 private:
  std::vector<SlicePart> Compute(int slice, int64_t rows) const;

  const ClusterModel& cluster_;
  const DeviceSpec& device_;
  // [slices] The first slice that takes as long as this one.
  std::vector<int> alike_;
  // By number of rows: [slices] the parts of the slices that were asked for.
  std::unordered_map<int64_t, std::vector<std::vector<SlicePart>>> by_rows_;
};

}  // namespace lamina
