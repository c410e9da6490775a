// What the vector types of AVX2 and AVX-512 share for F8. Only they may include this.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd_scalar.h"

namespace lamina {

inline constexpr int kMaxF8Bits = 0x43e00000;  // of kMaxF8 as a float

// 16 F8s as F16s, times kF8Scale. F8's only NaN, 0x7f, would be 1.875 there: it gets the exponent
// of a NaN.
LAMINA_SIMD __m256i HalvesOfF8(__m128i bytes) {
  // The sign stands in bit 15 and in bit 14, where it does not belong. One more in the magnitude
  // carries into bit 14 for a NaN only.
  const __m256i bits = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  const __m256i carried = _mm256_add_epi16(bits, _mm256_set1_epi16(0x80));
  return _mm256_xor_si256(bits, _mm256_and_si256(carried, _mm256_set1_epi16(0x4000)));
}

LAMINA_SIMD __m256i Load16HalvesOfF8(const F8* p) {
  return HalvesOfF8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LAMINA_SIMD __m128i Load8HalvesOfF8(const F8* p) {
  return _mm256_castsi256_si128(HalvesOfF8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

}  // namespace lamina
