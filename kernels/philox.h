// Philox 4x32-10, a counter-based random generator: 128 random bits as a function of (counter,
// key), without state, so that every device gets the same ones. Salmon, Moraes, Dror, Shaw:
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 4.3.
#pragma once

#include <array>
#include <cstdint>

namespace lamina {

constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;  // the golden ratio's fraction
    key[1] += 0xBB67AE85u;  // the fraction of sqrt(3)
  }
  return counter;
}

}  // namespace lamina
