#include "plan/workload/random_stream.h"

#include <cmath>
#include <numbers>

namespace lamina {
namespace {

// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014):
// neighbouring seeds and streams start far apart.
uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

RandomStream::RandomStream(uint64_t seed, uint64_t stream)
    : engine_(MixBits(MixBits(seed) + stream)) {}

double RandomStream::Unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

int64_t RandomStream::Between(int64_t low, int64_t high) {
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  if (width == 0) return static_cast<int64_t>(engine_());  // all 2^64 numbers
  // A multiple of `width`: bits from there on would favour small values, and are drawn again.
  const uint64_t fair = width * (UINT64_MAX / width);
  uint64_t bits = engine_();
  while (bits >= fair) bits = engine_();
  return static_cast<int64_t>(static_cast<uint64_t>(low) + bits % width);
}

double RandomStream::Normal() {
  const double radius = std::sqrt(-2 * std::log(1 - Unit()));  // 1 - Unit() is never 0
  return radius * std::cos(2 * std::numbers::pi * Unit());
}

double RandomStream::Gamma(double shape) {
  // The method is for shapes of at least 1; a smaller one's number is a larger one's times a power
  // of a uniform number.
  if (shape < 1) {
    const double larger = Gamma(shape + 1);
    return larger * std::pow(1 - Unit(), 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = Normal();
    const double t = 1 + c * x;
    if (t <= 0) continue;
    const double v = t * t * t;
    if (std::log(1 - Unit()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

}  // namespace lamina
