// This machine as a device of the cost model: what its cores and its memory reach at most, measured
// beside what is compared with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/worker_team.h"
#include "bench/kernels/kernel_limits.h"
#include "cost/device_catalog.h"

namespace lamina {

// Thread: owner.
class MachineLimits {
 public:
  // Borrows the team, whose workers are measured. Takes 512 MiB of memory. REQUIRES:
  // CheckLimitsOf(ActiveCpuIsa()) is OK.
  explicit MachineLimits(WorkerTeam& team);
  ~MachineLimits();
  MachineLimits(const MachineLimits&) = delete;
  MachineLimits& operator=(const MachineLimits&) = delete;

  // Takes another sample, in a few tenths of a second.
  void Measure();

  // Medians of the samples: multiply-adds of vectors, and a stream of reads, both taken to be
  // reached without any loss. REQUIRES: Measure was called.
  DeviceSpec device() const;

 private:
  WorkerTeam& team_;
  std::byte* const memory_;
  // One range; it is empty if there is no memory.
  const std::vector<std::span<const std::byte>> ranges_;
  const StreamRead how_;
  std::vector<double> gflops_, gb_per_s_;
};

}  // namespace lamina
