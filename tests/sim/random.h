// Random numbers that depend on the seed alone: the same on every platform and with every library.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace lamina::sim {

// SplitMix64 (Steele, Lea and Flood 2014). Value type.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In [0, count). REQUIRES: count > 0.
  uint64_t Below(uint64_t count) { return Next() % count; }
  // In [least, most].
  int Between(int least, int most) {
    return least + static_cast<int>(Below(static_cast<uint64_t>(most - least + 1)));
  }
  Clock::duration Between(Clock::duration least, Clock::duration most) {
    return least + Clock::duration(static_cast<Clock::rep>(
                       Below(static_cast<uint64_t>((most - least).count() + 1))));
  }
  bool Chance(int percent) { return Below(100) < static_cast<uint64_t>(percent); }

 private:
  uint64_t state_;
};

}  // namespace lamina::sim
