// Random numbers that are the same with every standard library: std::mt19937_64 is specified bit by
// bit, the distributions of <random> are not, so they are written here. Where logarithms are
// rounded alike, a seed gives the same workload on every machine.
#pragma once

#include <cstdint>
#include <random>

namespace lamina {

// Value type. Streams of one seed are independent of each other: drawing more from one does not
// change what another gives.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t stream);

  uint64_t Bits() { return engine_(); }
  // Uniform in [0, 1), with 53 bits.
  double Unit();
  // Uniform in [low, high]. REQUIRES: low <= high.
  int64_t Between(int64_t low, int64_t high);
  // Mean 0, variance 1 (Box and Muller, "A Note on the Generation of Random Normal Deviates",
  // 1958).
  double Normal();
  // Scale 1, mean `shape` (Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables",
  // 2000). REQUIRES: shape > 0.
  double Gamma(double shape);

 private:
  std::mt19937_64 engine_;
};

}  // namespace lamina
