// What benchmarks of linear layers have in common: the memory that they read, and how often they
// run for one sample.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/linear.h"

namespace lamina {

// Where the weights of each copy of a layer lie.
inline std::vector<std::span<const std::byte>> MemoryOf(const std::vector<PackedWeights>& copies) {
  std::vector<std::span<const std::byte>> ranges;
  for (const PackedWeights& copy : copies) {
    ranges.emplace_back(static_cast<const std::byte*>(copy.data()),
                        static_cast<size_t>(copy.size_bytes()));
  }
  return ranges;
}

inline double BytesOf(std::span<const std::span<const std::byte>> ranges) {
  size_t bytes = 0;
  for (const std::span<const std::byte> range : ranges) bytes += range.size();
  return static_cast<double>(bytes);
}

// Calls of one sample, so that it is longer than a time slice. With few rows a call waits for
// memory, and takes longer than its operations say.
inline size_t CallsOfSample(int64_t rows, double operations_of_call) {
  constexpr double kOperations = 4e9;
  return static_cast<size_t>(std::max(
      1.0, kOperations * std::min<double>(1, static_cast<double>(rows) / 16) / operations_of_call));
}

}  // namespace lamina
