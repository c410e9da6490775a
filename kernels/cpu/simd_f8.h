// Conversions from F8 that the vector types of AVX2 and AVX-512 share. Only simd_avx2.h and
// simd_avx512.h may include this.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd_scalar.h"

namespace lamina {

inline constexpr int kMaxF8Bits = 0x43e00000;  // the bits of kMaxF8 as a float

// Converts 16 F8s to F16s, times kF8Scale, by moving their bits. F8's NaN, magnitude 0x7f, would
// become the number 1.875 by that: it gets the exponent of a NaN.
LAMINA_SIMD __m256i HalvesOfF8(__m128i bytes) {
  // Extending the sign and shifting leaves the sign in bit 15 and also in bit 14, where the
  // exponent's highest bit belongs. That bit must be 0, and 1 for a NaN. Adding one to the
  // magnitude carries into bit 14 for a NaN only, so the exclusive or with the sum's bit 14 gives
  // just that.
  const __m256i bits = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  const __m256i carried = _mm256_add_epi16(bits, _mm256_set1_epi16(0x80));
  return _mm256_xor_si256(bits, _mm256_and_si256(carried, _mm256_set1_epi16(0x4000)));
}

// Load 16 or 8 F8s as F16s, times kF8Scale. Nothing beyond them is read.
LAMINA_SIMD __m256i Load16HalvesOfF8(const F8* p) {
  return HalvesOfF8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LAMINA_SIMD __m128i Load8HalvesOfF8(const F8* p) {
  return _mm256_castsi256_si128(HalvesOfF8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

}  // namespace lamina
