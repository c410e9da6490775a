// What of a tile of K or V a warp multiplies at a time, from shared memory: a of MultiplyAdd
// (tensor_cores.cuh), 16 tokens of K by 16 dims, or 16 dims of V by 16 tokens.
#pragma once

#include "kernels/cuda/tensor_cores.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lamina::cuda {

inline constexpr int kStep = 16;  // dims, or tokens, of one multiplication

// What one load brings a lane, of 16 bits: as it is multiplied.
template <typename T>
struct Fragments {
  using Multiplied = T;
  static constexpr int kSteps = 1;  // multiplications of a load

  // Each lane loads 16 bytes from this token and dim on.
  __device__ static int TokenOfK(int lane) { return lane % 16; }
  __device__ static int DimOfK(int lane) { return lane / 16 * 8; }
  __device__ static int TokenOfV(int lane) { return lane % 8 + lane / 16 * 8; }
  __device__ static int DimOfV(int lane) { return lane / 8 % 2 * 8; }

  // Of a step's dims of K, a lane has those from FirstDim on, two, and two kDimsApart from them:
  // its part of b must be the same.
  __device__ static int FirstDim(int lane) { return lane % 4 * 2; }
  static constexpr int kDimsApart = 8;
  // The dim of V in row `row` of a.
  __device__ static int DimOfRow(int row) { return row; }

  __device__ void LoadK(const T* at) { LoadMatrices(at, words); }
  __device__ void LoadV(const T* at) { LoadTransposed(at, words); }
  __device__ void GetK(int step, uint32_t (&a)[4]) const { GetV(step, a); }
  __device__ void GetV(int /*step*/, uint32_t (&a)[4]) const {
    LAMINA_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = words[i];
  }

  uint32_t words[4];
};

// Bytes are loaded as if two were one element of 16 bits, which costs no shared memory and no more
// bank conflicts, and become fp16 in registers. A load is for two steps: of K 32 dims, where a lane
// has four beside each other of each step; of V 32 tokens, where it has two dims of each, which go
// to different rows of a.
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
    for (int i = 0; i < 4; ++i) a[i] = HalvesOf(words[2 * step + i % 2] >> i / 2 * 16);
  }
  __device__ void GetV(int step, uint32_t (&a)[4]) const {
    LAMINA_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = HalvesOf(TokensOfDim(words[2 * step + i / 2], i % 2));
  }

  // A word has two dims of a token, then the same of the next token: both tokens' byte of one of
  // the dims.
  __device__ static uint32_t TokensOfDim(uint32_t word, int dim) {
    const uint32_t shifted = word >> 8 * dim;
    return (shifted & 0xffu) | (shifted >> 8 & 0xff00u);
  }

  uint32_t words[4];
};

}  // namespace lamina::cuda
