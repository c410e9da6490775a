#include "manager/engine.h"

namespace lamina {

// SplitMix64's finalizer, twice: it is one-to-one, and changes half of the bits for every bit of
// its input.
uint64_t ChoiceSeed(uint64_t seed, uint64_t prompt_index, uint64_t continuation) {
  const auto mixed = [](uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  if (prompt_index == 0 && continuation == 0) return seed;
  return mixed(mixed(seed) + (prompt_index << 32 | continuation));
}

}  // namespace lamina
