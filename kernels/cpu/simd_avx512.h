// The operations that simd_scalar.h documents, on one AVX-512 register. Only kernels_avx512.cc,
// which is compiled for AVX-512F and BW, FMA and F16C, may include this.
//
// No kernel uses AVX512_BF16, which would also give other bits. Its dot product takes two products
// per lane, but q, the weights of V and inputs are fp32 and would have to be split into a high and
// a low bf16: two dot products for what two multiply-adds do, at the same rate. Measured on Zen 5:
// 7.9 G/s of each per core, a latency of 6 cycles against 4, and the shifts and masks that widen
// bf16 cost nothing beside multiply-adds (7.7 to 7.9 G/s with one for each).
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd_f8.h"
#include "kernels/cpu/simd_scalar.h"

namespace lamina {

struct Avx512Vec {
  static constexpr int kRegisters = 32;
  using Register = Avx512Vec;
  static constexpr int kVectorRegisters = 1;
  __m512 v;

  LAMINA_SIMD static Avx512Vec Zero() { return {_mm512_setzero_ps()}; }
  LAMINA_SIMD static Avx512Vec Set(float x) { return {_mm512_set1_ps(x)}; }

  LAMINA_SIMD static Avx512Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  LAMINA_SIMD static Avx512Vec Load(const BF16* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Bits(p)), 16))};
  }
  LAMINA_SIMD static Avx512Vec Load(const F16* p) { return {_mm512_cvtph_ps(Bits(p))}; }
  LAMINA_SIMD static Avx512Vec Load(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
  }
  using Words = __m512i;
  LAMINA_SIMD static Words LoadWords(const uint32_t* p) { return _mm512_loadu_si512(p); }
  // The lowest 4 bits of each lane choose from a table, so nothing has to be masked or converted.
  template <int i>
  LAMINA_SIMD static Avx512Vec Nibble(Words w) {
    const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return {_mm512_permutexvar_ps(_mm512_srli_epi32(w, 4 * i), table)};
  }
  template <int i>
  LAMINA_SIMD static Avx512Vec NibbleF4(Words w) {
    const __m512 table =
        _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    return {_mm512_permutexvar_ps(_mm512_srli_epi32(w, 4 * i), table)};
  }
  // bf16 is the upper half of a float: of each 32 bits the even element is shifted into place, the
  // odd one is there already.
  LAMINA_SIMD static Avx512Vec LoadEven(const BF16* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
  }
  LAMINA_SIMD static Avx512Vec LoadOdd(const BF16* p) {
    return {_mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  LAMINA_SIMD static Avx512Vec LoadHalf(const float* p) { return {_mm512_maskz_loadu_ps(0xff, p)}; }
  LAMINA_SIMD static Avx512Vec LoadHalf(const BF16* p) {
    const __m256i half =
        _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
  }
  LAMINA_SIMD static Avx512Vec LoadHalf(const F16* p) {
    return {_mm512_cvtph_ps(
        _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  LAMINA_SIMD static Avx512Vec LoadHalf(const int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
  }
  LAMINA_SIMD static Avx512Vec Load(const F8* p) { return LoadScaled(p) * Set(1 / kF8Scale); }
  LAMINA_SIMD static Avx512Vec LoadScaled(const F8* p) {
    return {_mm512_cvtph_ps(Load16HalvesOfF8(p))};
  }
  LAMINA_SIMD static Avx512Vec LoadFirstScaled(const F8* p) {
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(Load32HalvesOfF8(p)))};
  }
  LAMINA_SIMD static Avx512Vec LoadSecondScaled(const F8* p) {
    return {_mm512_cvtph_ps(_mm512_extracti64x4_epi64(Load32HalvesOfF8(p), 1))};
  }
  LAMINA_SIMD static Avx512Vec LoadHalfScaled(const F8* p) {
    return {_mm512_cvtph_ps(_mm256_zextsi128_si256(Load8HalvesOfF8(p)))};
  }
  template <int n>
  LAMINA_SIMD static void Widen(const F8* p, F16* y) {
    if constexpr (n == 32) _mm512_storeu_si512(y, Load32HalvesOfF8(p));
    if constexpr (n == 16) _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), Load16HalvesOfF8(p));
    if constexpr (n == 8) _mm_storeu_si128(reinterpret_cast<__m128i*>(y), Load8HalvesOfF8(p));
  }

  // Sums of four vectors still have four parts each, one per 128 bits, and of eight two: shuffles
  // across 128-bit lanes are left to the last two steps.
  using Sums8 = __m512;
  LAMINA_SIMD static Avx512Vec Sum2(Avx512Vec a, Avx512Vec b) {
    return {_mm512_add_ps(_mm512_mask_mov_ps(a.v, 0xcccc, b.v), _mm512_shuffle_ps(a.v, b.v, 0x4e))};
  }
  LAMINA_SIMD static Avx512Vec Sum4(Avx512Vec ab, Avx512Vec cd) {
    return {
        _mm512_add_ps(_mm512_shuffle_ps(ab.v, cd.v, 0x88), _mm512_shuffle_ps(ab.v, cd.v, 0xdd))};
  }
  LAMINA_SIMD static Sums8 Sum8(Avx512Vec a, Avx512Vec b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a.v, b.v, 0x44),
                         _mm512_shuffle_f32x4(a.v, b.v, 0xee));
  }
  LAMINA_SIMD static Avx512Vec Sum16(Sums8 a, Sums8 b) {
    return {_mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd))};
  }

  LAMINA_SIMD Avx512Vec Held() const { return *this; }
  LAMINA_SIMD void Store(float* p) const { _mm512_storeu_ps(p, v); }
  // The bits of ToBF16 (base/dtype.h).
  LAMINA_SIMD void Store(BF16* p) const {
    const __m512i u = _mm512_castps_si512(v);
    const __m512i upper = _mm512_srli_epi32(u, 16);
    const __m512i bias =
        _mm512_add_epi32(_mm512_set1_epi32(0x7fff), _mm512_and_si512(upper, _mm512_set1_epi32(1)));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i result = _mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(result));
  }
  LAMINA_SIMD void Store(F16* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  // The bits of ToF8 (base/dtype.h): both the normal and the subnormal result are computed, and the
  // lanes choose.
  LAMINA_SIMD void Store(F8* p) const {
    const __m512i u = _mm512_castps_si512(v);
    const __m512i a = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
    const __m512i capped = _mm512_min_epi32(a, _mm512_set1_epi32(kMaxF8Bits));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(capped, 20), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(capped, odd), _mm512_set1_epi32(0x7ffff - (120 << 23)));
    const __m512 shifted = _mm512_add_ps(_mm512_castsi512_ps(capped), _mm512_set1_ps(16384));
    const __m512i subnormal =
        _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(0x46800000));
    const __mmask16 small = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(0x3c800000), capped);
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(a, _mm512_set1_epi32(0x7f800000));
    const __m512i magnitude =
        _mm512_mask_mov_epi32(_mm512_srli_epi32(rounded, 20), small, subnormal);
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(u, 24), _mm512_set1_epi32(0x80));
    const __m512i result =
        _mm512_or_si512(_mm512_mask_mov_epi32(magnitude, nan, _mm512_set1_epi32(0x7f)), sign);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(result));
  }
  LAMINA_SIMD void Store(int8_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  }

  LAMINA_SIMD float SumLanes() const {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), UpperHalf());
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  LAMINA_SIMD float MaxLanes() const {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v), UpperHalf());
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  LAMINA_SIMD float First() const { return _mm512_cvtss_f32(v); }

  LAMINA_SIMD static Avx512Vec FirstOf(int n, Avx512Vec a, Avx512Vec b) {
    const int lanes = n < 0 ? 0 : n > 16 ? 16 : n;
    return {_mm512_mask_mov_ps(b.v, static_cast<__mmask16>((1u << lanes) - 1u), a.v)};
  }
  LAMINA_SIMD static Avx512Vec PowerOfTwo(Avx512Vec x) {
    return {_mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(x.v), _mm512_set1_epi32(127)), 23))};
  }

  LAMINA_SIMD friend Avx512Vec operator+(Avx512Vec a, Avx512Vec b) {
    return {_mm512_add_ps(a.v, b.v)};
  }
  LAMINA_SIMD friend Avx512Vec operator-(Avx512Vec a, Avx512Vec b) {
    return {_mm512_sub_ps(a.v, b.v)};
  }
  LAMINA_SIMD friend Avx512Vec operator*(Avx512Vec a, Avx512Vec b) {
    return {_mm512_mul_ps(a.v, b.v)};
  }
  LAMINA_SIMD friend Avx512Vec operator/(Avx512Vec a, Avx512Vec b) {
    return {_mm512_div_ps(a.v, b.v)};
  }
  LAMINA_SIMD friend Avx512Vec Fma(Avx512Vec a, Avx512Vec b, Avx512Vec c) {
    return {_mm512_fmadd_ps(a.v, b.v, c.v)};
  }
  LAMINA_SIMD friend Avx512Vec Max(Avx512Vec a, Avx512Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  LAMINA_SIMD friend Avx512Vec Min(Avx512Vec a, Avx512Vec b) { return {_mm512_min_ps(a.v, b.v)}; }

 private:
  // 32 F8s as F16s, times kF8Scale. HalvesOfF8 in simd_f8.h explains the operations.
  LAMINA_SIMD static __m512i Load32HalvesOfF8(const F8* p) {
    const __m512i bits = _mm512_slli_epi16(_mm512_cvtepi8_epi16(Bits(p)), 7);
    const __m512i carried = _mm512_add_epi16(bits, _mm512_set1_epi16(0x80));
    // 0x78: bits ^ (carried & 0x4000).
    return _mm512_ternarylogic_epi32(bits, carried, _mm512_set1_epi16(0x4000), 0x78);
  }
  LAMINA_SIMD static __m256i Bits(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  LAMINA_SIMD __m256 UpperHalf() const {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
  }
};

}  // namespace lamina
