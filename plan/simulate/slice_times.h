// How long a device of the catalog takes for the slices of a model, by the number of rows: the cost
// model's times, each computed once.
#pragma once

#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "cost/device_catalog.h"
#include "plan/simulate/cluster_model.h"

namespace lamina {

// A slice, or what of it lies between two sums of partial results (tensor parallelism).
struct SlicePart {
  Clock::duration time{};
  Clock::duration behind_q{};  // of that: after q is complete
  bool has_q = false;
  int64_t sum_elements = 0;  // of each row, that the ranks exchange behind this part; 0: none
};

// Thread: one owner. Borrows the cluster.
class SliceTimes {
 public:
  SliceTimes(const ClusterModel& cluster, const DeviceSpec& device);

  // The parts of slice k. Valid until the object is gone.
  const std::vector<SlicePart>& Of(int slice, int64_t rows);

  // Seconds of all slices of one step.
  double StepSeconds(int64_t rows, int64_t sampled_rows);

 private:
  std::vector<SlicePart> Compute(int slice, int64_t rows) const;

  const ClusterModel& cluster_;
  const DeviceSpec& device_;
  // [slices] the first slice that takes as long.
  std::vector<int> alike_;
  // [slices]; those that are asked for.
  std::unordered_map<int64_t, std::vector<std::vector<SlicePart>>> by_rows_;
};

}  // namespace lamina
