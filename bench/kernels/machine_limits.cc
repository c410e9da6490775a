#include "bench/kernels/machine_limits.h"

#include <algorithm>

#include "base/huge_memory.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

// More than any cache holds.
constexpr size_t kReadBytes = size_t{512} << 20;
constexpr double kFmaSeconds = 0.2;

std::byte* TouchedMemory() {
  auto* const memory = static_cast<std::byte*>(MapHuge(kReadBytes));
  if (memory != nullptr) std::fill_n(memory, kReadBytes, std::byte{1});
  return memory;
}

}  // namespace

MachineLimits::MachineLimits(WorkerTeam& team)
    : team_(team),
      memory_(TouchedMemory()),
      ranges_{{memory_, memory_ == nullptr ? 0 : kReadBytes}},
      how_(FastestStreamRead(ranges_, team)) {}

MachineLimits::~MachineLimits() { UnmapHuge(memory_, kReadBytes); }

void MachineLimits::Measure() {
  gflops_.push_back(MeasureFmaPeak(kFmaSeconds, team_));
  gb_per_s_.push_back(MeasureStreamRead(ranges_, how_, team_));
}

DeviceSpec MachineLimits::device() const {
  DeviceSpec device;
  device.name = "this machine";
  device.bf16_tflops = Percentile(gflops_, 0.5) * 1e-3;
  device.bandwidth_gb_per_s = Percentile(gb_per_s_, 0.5);
  // The peak is what was reached, so nothing is lost of it.
  device.mfu = {{1, 1.0}};
  device.source = "measured";
  return device;
}

}  // namespace lamina
