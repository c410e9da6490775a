// Eight elements at a time: 16 bytes of a 16-bit type, which is what one load of a thread takes.
#pragma once

#include "kernels/cuda/platform.cuh"

// Before a loop over registers: its indices must be known to the compiler.
#if LAMINA_CUDA_EMULATED
#define LAMINA_UNROLL
#else
#define LAMINA_UNROLL _Pragma("unroll")
#endif

namespace lamina::cuda {

inline constexpr int kVector = 8;

struct alignas(16) Words4 {
  uint32_t word[4];
};
struct alignas(16) Floats4 {
  float value[4];
};

__device__ inline float AsFloat(uint32_t bits) {
#if LAMINA_CUDA_EMULATED
  return std::bit_cast<float>(bits);
#else
  return __uint_as_float(bits);
#endif
}

// x = p[0, 8). p is aligned to 16 bytes.
__device__ inline void LoadVector(const BF16* p, float (&x)[kVector]) {
  const Words4 words = *reinterpret_cast<const Words4*>(p);
  LAMINA_UNROLL
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = AsFloat(words.word[i] << 16);
    x[2 * i + 1] = AsFloat(words.word[i] & 0xffff0000u);
  }
}
__device__ inline void LoadVector(const F16* p, float (&x)[kVector]) {
  const Words4 words = *reinterpret_cast<const Words4*>(p);
  LAMINA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const F16 low = {static_cast<uint16_t>(words.word[i])}, high = {static_cast<uint16_t>(words.word[i] >> 16)};
    x[2 * i] = Load(&low);
    x[2 * i + 1] = Load(&high);
  }
}
__device__ inline void LoadVector(const float* p, float (&x)[kVector]) {
  LAMINA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const Floats4 floats = reinterpret_cast<const Floats4*>(p)[half];
    LAMINA_UNROLL
    for (int i = 0; i < 4; ++i) x[4 * half + i] = floats.value[i];
  }
}

// Copies eight elements of T to shared memory (platform.cuh).
template <typename T>
__device__ inline void CopyVectorAsync(T* shared, const T* global) {
  CopyAsync16(shared, global);
  if constexpr (sizeof(T) == 4) CopyAsync16(shared + 4, global + 4);
}

}  // namespace lamina::cuda
