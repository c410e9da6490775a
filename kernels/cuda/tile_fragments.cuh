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

// F8 is loaded as if two bytes were one element of 16 bits, which takes no shared memory and causes
// no more bank conflicts, and converted to F16 in registers. A load serves two multiplications. Of
// K it brings 32 dims, of which a lane has four neighbours for each multiplication; of V it brings
// 32 tokens, of which a lane has two dims each, which become different rows of a.
template <>
struct Fragments<F8> {
  using Multiplied = F16;
  static constexpr int kSteps = 2;

  __device__ static int TokenOfK(int lane) { return lane % 16; }
  __device__ static int DimOfK(int lane) { return lane / 16 * 16; }
  __device__ static int TokenOfV(int lane) { return lane; }
  __device__ static int DimOfV(int /*lane*/) { return 0; }

  __device__ static int FirstDim(int lane) { return lane % 4 * 4; }
  static constexpr int kDimsApart = 2;
  __device__ static int DimOfRow(int row) { return row % 8 * 2 + row / 8; }

  __device__ void LoadK(const F8* at) { LoadMatrices(at, words); }
  __device__ void LoadV(const F8* at) { LoadTransposed(at, words); }
  __device__ void GetK(int step, uint32_t (&a)[4]) const {
    LAMINA_UNROLL
    for (int i = 0; i < 2; ++i) {
      a[i] = HalvesOf(words[2 * step + i]);
      a[i + 2] = UpperHalvesOf(words[2 * step + i]);
    }
  }
  __device__ void GetV(int step, uint32_t (&a)[4]) const {
    LAMINA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint32_t by_dim = ByDim(words[2 * step + i]);
      a[2 * i] = HalvesOf(by_dim);
      a[2 * i + 1] = UpperHalvesOf(by_dim);
    }
  }

  // A word holds two dims of a token, then the same dims of the next token. Returns both tokens of
  // the first dim, then of the second.
  __device__ static uint32_t ByDim(uint32_t word) {
#if LAMINA_CUDA_EMULATED
    return (word & 0xff0000ffu) | (word & 0xff00u) << 8 | (word >> 8 & 0xff00u);
#else
    return __byte_perm(word, 0, 0x3120);
#endif
  }

  uint32_t words[4];
};

}  // namespace lamina::cuda
