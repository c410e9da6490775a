// Vectors of eight elements, the unit in which kernels load K and V: 16 bytes of a 16-bit type,
// which is the most that one load instruction of a thread takes, or 8 bytes of F8.
#pragma once

#include "kernels/cuda/platform.cuh"

// Stands before a loop over an array that is to stay in registers: the compiler must know the
// indices for that.
#if LAMINA_CUDA_EMULATED
#define LAMINA_UNROLL
#else
#define LAMINA_UNROLL _Pragma("unroll")
#endif

namespace lamina::cuda {

inline constexpr int kVector = 8;  // elements

// Types whose loads and stores are one instruction.
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

// Converts two F8s, the lower 16 bits of `pair`, to two F16s side by side. Exact.
__device__ inline uint32_t HalvesOf(uint32_t pair) {
#if LAMINA_CUDA_EMULATED
  const F8 first = {static_cast<uint8_t>(pair)}, second = {static_cast<uint8_t>(pair >> 8)};
  return ToF16(ToFloat(first)).bits | static_cast<uint32_t>(ToF16(ToFloat(second)).bits) << 16;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(pair)));
  return halves;
#else
  // Moved into an F16's place, the bits of an F8 mean the value times 2^-8, subnormals too; 0x5c00
  // is 2^8. The bits of F8's NaN come out as 480 (0x5f80) by that, which no other F8 does, and the
  // mask makes a NaN of it.
  const uint32_t apart = __byte_perm(pair, 0, 0x1404);
  const __half2 scaled =
      __hmul2(AsHalves((apart & 0x80008000u) | (apart & 0x7f007f00u) >> 1), AsHalves(0x5c005c00u));
  return *reinterpret_cast<const uint32_t*>(&scaled) |
         __heq2_mask(__habs2(scaled), AsHalves(0x5f805f80u));
#endif
}
// The same of the upper 16 bits of `pairs`.
__device__ inline uint32_t UpperHalvesOf(uint32_t pairs) {
#if !LAMINA_CUDA_EMULATED && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t halves;  // a shift would be an instruction of its own
  asm("{ .reg .b16 lower, upper; mov.b32 {lower, upper}, %1; cvt.rn.f16x2.e4m3x2 %0, upper; }"
      : "=r"(halves)
      : "r"(pairs));
  return halves;
#else
  return HalvesOf(pairs >> 16);
#endif
}

// Converts integers of 8 bits to F16s in two steps, exactly. First the four of a word are raised by
// 128, which makes bytes of [0, 255] of them. Put below 0x64, such a byte is the F16 of 1024 more,
// so that taking away 1152 leaves the integer.
__device__ inline uint32_t RaisedIntegers(uint32_t word) { return word ^ 0x80808080u; }
// kPlaces: which bytes of `raised`, 0 to 3, become the first and the second F16, as the selector of
// a byte permute, in which 4 is 0x64: 0x4<second>4<first>.
template <unsigned kPlaces>
__device__ inline uint32_t HalvesOfRaised(uint32_t raised) {
#if LAMINA_CUDA_EMULATED
  const auto half = [&](unsigned place) {
    return uint32_t{ToF16(static_cast<float>(raised >> 8 * place & 0xffu) - 128).bits};
  };
  return half(kPlaces & 0xf) | half(kPlaces >> 8 & 0xf) << 16;
#else
  const __half2 integers =
      __hsub2(AsHalves(__byte_perm(raised, 0x64646464u, kPlaces)), AsHalves(0x64806480u));
  return *reinterpret_cast<const uint32_t*>(&integers);
#endif
}

// Loads x = p[0, 8) and converts it to fp32. REQUIRES: p is aligned to 16 bytes, or to 8 if it is
// of F8.
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

// The elements of T that CopyVectorAsync copies: eight, or 16 of 8 bits, since no copy is of fewer
// than 16 bytes.
template <typename T>
inline constexpr int kCopied = sizeof(T) == 1 ? 16 : kVector;

// Starts to copy kCopied elements to shared memory, by CopyAsync16. shared, global: [kCopied],
// aligned to 16 bytes.
template <typename T>
__device__ inline void CopyVectorAsync(T* shared, const T* global) {
  CopyAsync16(shared, global);
  if constexpr (sizeof(T) == 4) CopyAsync16(shared + 4, global + 4);
}

}  // namespace lamina::cuda
