// Loads parts of a tile of K or V from shared memory into the registers of a warp, as operand `a`
// of MultiplyAdd (tensor_cores.cuh): 16 tokens of K by 16 dims, or 16 dims of V by 16 tokens.
#pragma once

#include "kernels/cuda/tensor_cores.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lamina::cuda {

inline constexpr int kStep = 16;  // dims, or tokens, of one multiplication

// What one load brings a lane. Here elements have 16 bits and are multiplied as they are.
template <typename T>
struct Fragments {
  using Multiplied = T;
  static constexpr int kSteps = 1;  // multiplications per load

  // The token and dim at which this lane's 16 bytes begin.
  __device__ static int TokenOfK(int lane) { return lane % 16; }
  __device__ static int DimOfK(int lane) { return lane / 16 * 8; }
  __device__ static int TokenOfV(int lane) { return lane % 8 + lane / 16 * 8; }
  __device__ static int DimOfV(int lane) { return lane / 8 % 2 * 8; }

  // Of the dims of K of one multiplication a lane has two from FirstDim on, and two more kDimsApart
  // behind them. Its part of operand b must be the same dims.
  __device__ static int FirstDim(int lane) { return lane % 4 * 2; }
  static constexpr int kDimsApart = 8;
  // The dim of V that is row `row` of operand a.
  __device__ static int DimOfRow(int row) { return row; }

  // Load this lane's 16 bytes; `at` is in shared memory.
  __device__ void LoadK(const T* at) { LoadMatrices(at, words); }
  __device__ void LoadV(const T* at) { LoadTransposed(at, words); }
  // Operand a of multiplication `step` of this load.
  __device__ void GetK(int step, uint32_t (&a)[4]) const { GetV(step, a); }
  __device__ void GetV(int /*step*/, uint32_t (&a)[4]) const {
    LAMINA_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = words[i];
  }

  uint32_t words[4];
};

// Two words of F16s.
struct HalvesOfWord {
  uint32_t first, second;
};

// The four elements of a word as F16s: the first two and the last two.
__device__ inline HalvesOfWord Neighbours(uint32_t word, F8 /*type*/) {
  return {HalvesOf(word), UpperHalvesOf(word)};
}
__device__ inline HalvesOfWord Neighbours(uint32_t word, int8_t /*type*/) {
  const uint32_t raised = RaisedIntegers(word);
  return {HalvesOfRaised<0x4140>(raised), HalvesOfRaised<0x4342>(raised)};
}

// Of V a word holds two dims of a token, then the same dims of the next token. Both tokens of the
// first dim, and of the second one.
__device__ inline HalvesOfWord ByDim(uint32_t word, F8 type) {
#if LAMINA_CUDA_EMULATED
  return Neighbours((word & 0xff0000ffu) | (word & 0xff00u) << 8 | (word >> 8 & 0xff00u), type);
#else
  return Neighbours(__byte_perm(word, 0, 0x3120), type);
#endif
}
__device__ inline HalvesOfWord ByDim(uint32_t word, int8_t /*type*/) {
  const uint32_t raised = RaisedIntegers(word);
  return {HalvesOfRaised<0x4240>(raised), HalvesOfRaised<0x4341>(raised)};
}

// Elements of 8 bits, F8 or integers, are loaded as if two bytes were one element of 16 bits, which
// takes no shared memory and causes no more bank conflicts, and converted to F16 in registers. A
// load serves two multiplications. Of K it brings 32 dims, of which a lane has four neighbours for
// each multiplication; of V it brings 32 tokens, of which a lane has two dims each, which become
// different rows of a.
template <typename T>
requires(sizeof(T) == 1) struct Fragments<T> {
  using Multiplied = F16;
  static constexpr int kSteps = 2;

  __device__ static int TokenOfK(int lane) { return lane % 16; }
  __device__ static int DimOfK(int lane) { return lane / 16 * 16; }
  __device__ static int TokenOfV(int lane) { return lane; }
  __device__ static int DimOfV(int /*lane*/) { return 0; }

  __device__ static int FirstDim(int lane) { return lane % 4 * 4; }
  static constexpr int kDimsApart = 2;
  __device__ static int DimOfRow(int row) { return row % 8 * 2 + row / 8; }

  __device__ void LoadK(const T* at) { LoadMatrices(at, words); }
  __device__ void LoadV(const T* at) { LoadTransposed(at, words); }
  __device__ void GetK(int step, uint32_t (&a)[4]) const {
    LAMINA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const HalvesOfWord of_word = Neighbours(words[2 * step + i], T{});
      a[i] = of_word.first;
      a[i + 2] = of_word.second;
    }
  }
  __device__ void GetV(int step, uint32_t (&a)[4]) const {
    LAMINA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const HalvesOfWord of_word = ByDim(words[2 * step + i], T{});
      a[2 * i] = of_word.first;
      a[2 * i + 1] = of_word.second;
    }
  }

  uint32_t words[4];
};

}  // namespace lamina::cuda
