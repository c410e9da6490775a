// Tensor cores for the emulation: they do what kernels/cuda/tensor_cores.cuh promises, element by
// element. That header says which elements a lane holds.
#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cuda/emulation/simt.h"

namespace lamina::cuda::emulation {

// The lower (half = 0) or upper (half = 1) of a register's two elements.
template <typename T>
float ElementOfPair(uint32_t pair, unsigned half) {
  return ToFloat(T{static_cast<uint16_t>(pair >> (16 * half))});
}

// d += a b. Each element is one sum in ascending order; hardware adds up in an order that it does
// not promise.
template <typename T>
void MultiplyAdd(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&d)[4],
                 SourceLine where = Here()) {
  // Lanes show each other where their registers are, and each computes its own elements of d.
  struct Operands {
    const uint32_t *a, *b;
  };
  const Operands mine = {a, b};
  const WarpValues all = Gather(reinterpret_cast<uint64_t>(&mine), where);
  const auto of_lane = [&](unsigned lane) { return *reinterpret_cast<const Operands*>(all[lane]); };
  const unsigned major = Lane() / 4, minor = Lane() % 4 * 2;
  std::array<float, 4> sums = {d[0], d[1], d[2], d[3]};
  for (unsigned j = 0; j < 4; ++j) {
    const unsigned row = major + j / 2 * 8, column = minor + j % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const Operands x = of_lane(row % 8 * 4 + k % 8 / 2), y = of_lane(column * 4 + k % 8 / 2);
      sums[j] +=
          ElementOfPair<T>(x.a[row / 8 + k / 8 * 2], k % 2) * ElementOfPair<T>(y.b[k / 8], k % 2);
    }
  }
  __syncwarp(0xffffffffu, where);  // all lanes have read the others' registers
  for (unsigned j = 0; j < 4; ++j) d[j] = sums[j];
}

// Loads four matrices of [8, 8] elements of 16 bits; `row` of lane i is row i % 8 of matrix i / 8.
inline void LoadMatrices(const void* row, bool transposed, uint32_t (&matrix)[4],
                         SourceLine where = Here()) {
  const WarpValues rows = Gather(reinterpret_cast<uint64_t>(row), where);
  const unsigned major = Lane() / 4, minor = Lane() % 4 * 2;
  for (unsigned m = 0; m < 4; ++m) {
    const auto element = [&](unsigned r, unsigned c) -> uint32_t {
      return reinterpret_cast<const uint16_t*>(rows[m * 8 + r])[c];
    };
    matrix[m] = transposed ? element(minor, major) | element(minor + 1, major) << 16
                           : element(major, minor) | element(major, minor + 1) << 16;
  }
}

}  // namespace lamina::cuda::emulation
