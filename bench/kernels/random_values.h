// Inputs for kernels that are measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace lamina {

// Uniform in [-1, 1), the same for the same seed.
inline std::vector<float> RandomValues(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(n);
  for (float& x : values) x = uniform(random);
  return values;
}

}  // namespace lamina
