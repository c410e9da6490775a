// Random numbers that are the same with every standard library: std::mt19937_64 is specified bit by
// bit, the distributions of <random> are not, so they are made here. Where logarithms round alike,
// a seed gives the same workload on every machine.
#pragma once

#include <cstdint>
#include <random>

namespace lamina {

// Value type. Streams of one seed are independent of each other: what is drawn from one does not
// shift another.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t stream);

  uint64_t Bits() { return engine_(); }
  double Unit();                               // [0, 1), 53 bits
  int64_t Between(int64_t low, int64_t high);  // both included. REQUIRES: low <= high
  double Normal();                             // mean 0, variance 1 (Box and Muller 1958)
  // Scale 1, mean `shape` (Marsaglia and Tsang 2000). REQUIRES: shape > 0.
  double Gamma(double shape);

 private:
  std::mt19937_64 engine_;
};

}  // namespace lamina
