// The operations that simd_scalar.h documents, on two AVX2 registers. Only kernels_avx2.cc, which
// is compiled for AVX2, FMA and F16C, may include this.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd_f8.h"
#include "kernels/cpu/simd_scalar.h"

namespace lamina {

// What ScalarVec::Register documents: lanes 0 to 7 of a vector, or 8 to 15.
struct Avx2Register {
  __m256 v;

  LAMINA_SIMD static Avx2Register Zero() { return {_mm256_setzero_ps()}; }
  LAMINA_SIMD static Avx2Register Set(float x) { return {_mm256_set1_ps(x)}; }
  LAMINA_SIMD static Avx2Register Load(const float* p) { return {_mm256_loadu_ps(p)}; }
  LAMINA_SIMD static Avx2Register Load(const BF16* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
  }
  LAMINA_SIMD static Avx2Register Load(const F16* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  LAMINA_SIMD static Avx2Register Load(const int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
  }
  template <typename T>
  LAMINA_SIMD static Avx2Register LoadHalf(const T* p) {
    return Load(p);
  }
  // bf16 is the upper half of a float: of each 32 bits the even element is shifted into place, the
  // odd one is there already.
  LAMINA_SIMD static Avx2Register LoadEven(const BF16* p) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(Bits(p), 16))};
  }
  LAMINA_SIMD static Avx2Register LoadOdd(const BF16* p) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_and_si256(Bits(p), upper))};
  }
  LAMINA_SIMD Avx2Register Held() const {
    Avx2Register r = *this;
    asm("" : "+x"(r.v));
    return r;
  }
  LAMINA_SIMD void Store(float* p) const { _mm256_storeu_ps(p, v); }

  LAMINA_SIMD friend Avx2Register operator+(Avx2Register a, Avx2Register b) {
    return {_mm256_add_ps(a.v, b.v)};
  }
  LAMINA_SIMD friend Avx2Register Fma(Avx2Register a, Avx2Register b, Avx2Register c) {
    return {_mm256_fmadd_ps(a.v, b.v, c.v)};
  }

  LAMINA_SIMD static __m256i Bits(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
};

struct Avx2Vec {
  static constexpr int kRegisters = 16;
  using Register = Avx2Register;
  static constexpr int kVectorRegisters = 2;
  __m256 lo, hi;  // lanes 0 to 7, lanes 8 to 15

  LAMINA_SIMD static Avx2Vec Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  LAMINA_SIMD static Avx2Vec Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

  template <typename T>
  LAMINA_SIMD static Avx2Vec Load(const T* p) {
    return {Register::Load(p).v, Register::Load(p + 8).v};
  }
  LAMINA_SIMD static Avx2Vec LoadEven(const BF16* p) {
    return {Register::LoadEven(p).v, Register::LoadEven(p + 16).v};
  }
  LAMINA_SIMD static Avx2Vec LoadOdd(const BF16* p) {
    return {Register::LoadOdd(p).v, Register::LoadOdd(p + 16).v};
  }
  LAMINA_SIMD static Avx2Vec Load(const F8* p) { return LoadScaled(p) * Set(1 / kF8Scale); }
  LAMINA_SIMD static Avx2Vec LoadScaled(const F8* p) {
    const __m256i halves = Load16HalvesOfF8(p);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
  }
  LAMINA_SIMD static Avx2Vec LoadFirstScaled(const F8* p) { return LoadScaled(p); }
  LAMINA_SIMD static Avx2Vec LoadSecondScaled(const F8* p) { return LoadScaled(p + 16); }
  template <int n>
  LAMINA_SIMD static void Widen(const F8* p, F16* y) {
    for (int i = 0; i + 16 <= n; i += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), Load16HalvesOfF8(p + i));
    if constexpr (n == 8) _mm_storeu_si128(reinterpret_cast<__m128i*>(y), Load8HalvesOfF8(p));
  }
  struct Words {
    __m256i lo, hi;
  };
  LAMINA_SIMD static Words LoadWords(const uint32_t* p) {
    return {Register::Bits(p), Register::Bits(p + 8)};
  }
  template <int i>
  LAMINA_SIMD static Avx2Vec Nibble(Words w) {
    const __m256i four = _mm256_set1_epi32(15);
    return {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(w.lo, 4 * i), four)),
            _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(w.hi, 4 * i), four))};
  }
  // The table has the numbers without their sign, which is shifted to where a float has it. Only
  // the lowest 3 bits of each lane choose from it.
  template <int i>
  LAMINA_SIMD static Avx2Vec NibbleF4(Words w) {
    const __m256 table = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), sign = _mm256_set1_ps(-0.0f);
    const auto number = [&](__m256i words) {
      const __m256i at_sign = i == 7 ? words : _mm256_slli_epi32(words, 28 - 4 * i);
      return _mm256_xor_ps(_mm256_permutevar8x32_ps(table, _mm256_srli_epi32(words, 4 * i)),
                           _mm256_and_ps(_mm256_castsi256_ps(at_sign), sign));
    };
    return {number(w.lo), number(w.hi)};
  }
  // Sums of four vectors still have two parts each, one per 128 bits.
  using Sums8 = __m256;
  LAMINA_SIMD static Register Sum2(Register a, Register b) {
    return {_mm256_add_ps(_mm256_blend_ps(a.v, b.v, 0xcc), _mm256_shuffle_ps(a.v, b.v, 0x4e))};
  }
  LAMINA_SIMD static Register Sum4(Register ab, Register cd) {
    return {
        _mm256_add_ps(_mm256_shuffle_ps(ab.v, cd.v, 0x88), _mm256_shuffle_ps(ab.v, cd.v, 0xdd))};
  }
  LAMINA_SIMD static Sums8 Sum8(Register a, Register b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a.v, b.v, 0x20),
                         _mm256_permute2f128_ps(a.v, b.v, 0x31));
  }
  LAMINA_SIMD static Avx2Vec Sum16(Sums8 a, Sums8 b) { return {a, b}; }

  LAMINA_SIMD void Store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  LAMINA_SIMD void Store(BF16* p) const {
    // The instruction packs within each 128-bit half; the permutation puts the quarters in order.
    const __m256i packed = _mm256_packus_epi32(RoundToBF16(lo), RoundToBF16(hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  LAMINA_SIMD void Store(F16* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                     _mm256_cvtps_ph(hi, _MM_FROUND_TO_NEAREST_INT));
  }
  LAMINA_SIMD void Store(F8* p) const {
    const __m256i packed =
        _mm256_permute4x64_epi64(_mm256_packus_epi32(RoundToF8(lo), RoundToF8(hi)), 0xd8);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packus_epi16(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1)));
  }
  LAMINA_SIMD void Store(int8_t* p) const {
    const __m256i packed = _mm256_permute4x64_epi64(
        _mm256_packs_epi32(_mm256_cvtps_epi32(lo), _mm256_cvtps_epi32(hi)), 0xd8);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packs_epi16(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1)));
  }

  LAMINA_SIMD float SumLanes() const {
    const __m256 eight = _mm256_add_ps(lo, hi);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  LAMINA_SIMD float MaxLanes() const {
    const __m256 eight = _mm256_max_ps(lo, hi);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  LAMINA_SIMD float First() const { return _mm256_cvtss_f32(lo); }

  LAMINA_SIMD static Avx2Vec FirstOf(int n, Avx2Vec a, Avx2Vec b) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 low = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), index));
    const __m256 high = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), index));
    return {_mm256_blendv_ps(b.lo, a.lo, low), _mm256_blendv_ps(b.hi, a.hi, high)};
  }
  LAMINA_SIMD static Avx2Vec PowerOfTwo(Avx2Vec x) {
    return {PowerOfTwo8(x.lo), PowerOfTwo8(x.hi)};
  }

  LAMINA_SIMD friend Avx2Vec operator+(Avx2Vec a, Avx2Vec b) {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  LAMINA_SIMD friend Avx2Vec operator-(Avx2Vec a, Avx2Vec b) {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  }
  LAMINA_SIMD friend Avx2Vec operator*(Avx2Vec a, Avx2Vec b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  LAMINA_SIMD friend Avx2Vec operator/(Avx2Vec a, Avx2Vec b) {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  }
  LAMINA_SIMD friend Avx2Vec Fma(Avx2Vec a, Avx2Vec b, Avx2Vec c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  LAMINA_SIMD friend Avx2Vec Max(Avx2Vec a, Avx2Vec b) {
    return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
  }
  LAMINA_SIMD friend Avx2Vec Min(Avx2Vec a, Avx2Vec b) {
    return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
  }

 private:
  // The bits of ToBF16 (base/dtype.h), one in each 32-bit lane.
  LAMINA_SIMD static __m256i RoundToBF16(__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i upper = _mm256_srli_epi32(u, 16);
    const __m256i bias =
        _mm256_add_epi32(_mm256_set1_epi32(0x7fff), _mm256_and_si256(upper, _mm256_set1_epi32(1)));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, bias), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
  }
  // The bits of ToF8 (base/dtype.h), one in each 32-bit lane: both the normal and the subnormal
  // result are computed, and the lanes choose.
  LAMINA_SIMD static __m256i RoundToF8(__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i a = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
    const __m256i capped = _mm256_min_epi32(a, _mm256_set1_epi32(kMaxF8Bits));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(capped, 20), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(capped, odd), _mm256_set1_epi32(0x7ffff - (120 << 23)));
    const __m256 shifted = _mm256_add_ps(_mm256_castsi256_ps(capped), _mm256_set1_ps(16384));
    const __m256i subnormal =
        _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x46800000));
    const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), capped);
    const __m256i nan = _mm256_cmpgt_epi32(a, _mm256_set1_epi32(0x7f800000));
    const __m256i magnitude = _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 20), subnormal, small);
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(u, 24), _mm256_set1_epi32(0x80));
    return _mm256_or_si256(_mm256_or_si256(magnitude, sign),
                           _mm256_and_si256(nan, _mm256_set1_epi32(0x7f)));
  }
  LAMINA_SIMD static __m256 PowerOfTwo8(__m256 x) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(127)), 23));
  }
};

}  // namespace lamina
