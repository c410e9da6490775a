// Eight elements at a time: 16 bytes of a 16-bit type, which is what one load of a thread takes,
// and 8 bytes of F8.
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

struct alignas(8) Words2 {
  uint32_t word[2];
};
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

#if !LAMINA_CUDA_EMULATED
__device__ inline __half2 AsHalves(uint32_t bits) {
  return *reinterpret_cast<const __half2*>(&bits);
}
#endif

// Two elements of F8, the lower half of `pair`, as two of F16 beside each other: exact.
__device__ inline uint32_t HalvesOf(uint32_t pair) {
#if LAMINA_CUDA_EMULATED
  const F8 first = {static_cast<uint8_t>(pair)}, second = {static_cast<uint8_t>(pair >> 8)};
  return ToF16(ToFloat(first)).bits | static_cast<uint32_t>(ToF16(ToFloat(second)).bits) << 16;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(pair)));
  return halves;
#else
  // The same bits, further left, are 2^-8 of it in F16, below its normal numbers too. But 480 there
  // is NaN here.
  const uint32_t apart = __byte_perm(pair, 0, 0x1404);
  const __half2 scaled =
      __hmul2(AsHalves((apart & 0x80008000u) | (apart & 0x7f007f00u) >> 1), AsHalves(0x5c005c00u));
  return *reinterpret_cast<const uint32_t*>(&scaled) |
         __heq2_mask(__habs2(scaled), AsHalves(0x5f805f80u));
#endif
}

// x = p[0, 8). p is aligned to 16 bytes, or those of eight elements if they are fewer.
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
    const F16 low = {static_cast<uint16_t>(words.word[i])},
              high = {static_cast<uint16_t>(words.word[i] >> 16)};
    x[2 * i] = Load(&low);
    x[2 * i + 1] = Load(&high);
  }
}
__device__ inline void LoadVector(const F8* p, float (&x)[kVector]) {
  const Words2 words = *reinterpret_cast<const Words2*>(p);
  LAMINA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t halves = HalvesOf(words.word[i / 2] >> i % 2 * 16);
    const F16 low = {static_cast<uint16_t>(halves)}, high = {static_cast<uint16_t>(halves >> 16)};
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

// Copies kCopied elements of T to shared memory (platform.cuh): eight, or 16 bytes if these are
// more.
template <typename T>
inline constexpr int kCopied = sizeof(T) == 1 ? 16 : kVector;
template <typename T>
__device__ inline void CopyVectorAsync(T* shared, const T* global) {
  CopyAsync16(shared, global);
  if constexpr (sizeof(T) == 4) CopyAsync16(shared + 4, global + 4);
}

}  // namespace lamina::cuda
