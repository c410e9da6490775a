// What the vector types of AVX2 and AVX-512 share for F8. Only they may include this.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd_scalar.h"

namespace lamina {

inline constexpr int kMaxF8Bits = 0x43e00000;  // of kMaxF8 as a float

// 16 F8s as binary16, times kF8LoadScale. F8's only NaN, 0x7f, would be 1.875 there: it becomes a NaN.
LAMINA_SIMD __m256i HalvesOfF8(__m128i bytes) {
  const __m256i bits = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);  // the sign stands in bit 15 and in bit 14
  const __m256i doubled = _mm256_set1_epi16(static_cast<short>(0xc000)), all = _mm256_set1_epi16(static_cast<short>(0xff80));
  const __m256i nan = _mm256_cmpeq_epi16(_mm256_or_si256(bits, doubled), all);
  return _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi16(static_cast<short>(0xbf80))), nan);
}

}  // namespace lamina
