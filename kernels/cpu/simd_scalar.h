// A vector of sixteen floats in plain C++. It documents what every vector type here offers
// (simd_avx2.h and simd_avx512.h offer the same), and serves CPUs without AVX2.
//
// ScalarVec, Avx2Vec and Avx512Vec do the same arithmetic lane by lane and reduce lanes in the same
// order, so a kernel written once over `class V` gives the same bits on all of them, and a sequence
// may move between machines of different kinds. Pointers need no alignment.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

#define LAMINA_SIMD [[gnu::always_inline]] inline

namespace lamina {

// The functions below whose names hold Scaled, and Widen, give F8 values times this factor. It is
// the difference of the exponents' biases, 7 in F8 and 15 in F16: the bits of an F8 in the place of
// an F16's mean the value times 2^-8, subnormals too. A kernel that takes the factor into account
// elsewhere saves a multiplication per vector.
inline constexpr float kF8Scale = 0x1p-8f;

// Sixteen floats. A value type.
struct ScalarVec {
  static constexpr int kRegisters = 8;  // how many the register file holds; sizes the tiles
  // One register of a vector: its 16 / kVectorRegisters lanes from a multiple of as many on. A
  // kernel that is short of registers may take a vector one register at a time. It has Zero, Set,
  // Load, LoadHalf, LoadEven, LoadOdd, Held, Store to floats, + and Fma.
  using Register = ScalarVec;
  static constexpr int kVectorRegisters = 1;
  float lane[16];

  static ScalarVec Zero() { return Set(0); }
  static ScalarVec Set(float x) {
    ScalarVec r;
    for (float& l : r.lane) l = x;
    return r;
  }

  // Loads 16 elements and converts them to fp32.
  template <typename T>
  static ScalarVec Load(const T* p) {
    ScalarVec r;
    for (int i = 0; i < 16; ++i) r.lane[i] = Float(p[i]);
    return r;
  }
  // Loads elements 0, 2, 4, ..., or 1, 3, 5, ..., of 32.
  static ScalarVec LoadEven(const BF16* p) { return Spread(p); }
  static ScalarVec LoadOdd(const BF16* p) { return Spread(p + 1); }
  // Loads 8 elements; the upper lanes, if a Register has as many, are 0.
  template <typename T>
  static ScalarVec LoadHalf(const T* p) {
    ScalarVec r = Zero();
    for (int i = 0; i < 8; ++i) r.lane[i] = Float(p[i]);
    return r;
  }
  // Load 16 elements, the first or the second 16 of 32, or 8, times kF8Scale. First and Second of
  // the same 32 are best called together: AVX-512 then converts all 32 at once. Half: only where
  // kVectorRegisters is 1.
  static ScalarVec LoadScaled(const F8* p) { return Load(p) * Set(kF8Scale); }
  static ScalarVec LoadFirstScaled(const F8* p) { return LoadScaled(p); }
  static ScalarVec LoadSecondScaled(const F8* p) { return LoadScaled(p + 16); }
  static ScalarVec LoadHalfScaled(const F8* p) { return LoadHalf(p) * Set(kF8Scale); }
  // Converts n = 32, 16 or 8 elements to F16, times kF8Scale. p, y: [n].
  template <int n>
  static void Widen(const F8* p, F16* y) {
    for (int i = 0; i < n; ++i) y[i] = ToF16(ToFloat(p[i]) * kF8Scale);
  }
  // Sixteen words of 32 bits, and the i-th lowest 4 bits of each as a float. i in [0, 8).
  struct Words {
    uint32_t word[16];
  };
  static Words LoadWords(const uint32_t* p) {
    Words r;
    std::memcpy(r.word, p, sizeof(r.word));
    return r;
  }
  template <int i>
  static ScalarVec Nibble(const Words& words) {
    ScalarVec r;
    for (int l = 0; l < 16; ++l) r.lane[l] = static_cast<float>(words.word[l] >> (4 * i) & 15u);
    return r;
  }
  // The same, as E2M1 (kernels/weight_format.h).
  template <int i>
  static ScalarVec NibbleF4(const Words& words) {
    constexpr float kNumbers[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                    -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    ScalarVec r;
    for (int l = 0; l < 16; ++l) r.lane[l] = kNumbers[words.word[l] >> (4 * i) & 15u];
    return r;
  }
  // The sums of the lanes of each of 16 vectors, as one vector. They are formed in a tree as the
  // vectors become known, so that few are live at a time: Sum2 takes a register of two vectors,
  // Sum4 two results of Sum2; with two registers to a vector the results of both are added; Sum8
  // takes two of Sum4, Sum16 two of Sum8. Lane n of the result of Sum16 is (s[0] + s[2]) + (s[1] +
  // s[3]) of the n-th vector, where s[i] is (l[0] + l[2]) + (l[1] + l[3]) of the lanes l of its
  // i-th quad. What the steps before hold is each class's own affair.
  struct Sums8 {
    float sum[8];
  };
  // Here: the sums of lanes 0 and 2 and of lanes 1 and 3 of each quad of a, then the same of b.
  static ScalarVec Sum2(ScalarVec a, ScalarVec b) {
    ScalarVec r;
    for (int i = 0; i < 16; i += 4) {
      for (int j = 0; j < 2; ++j) {
        r.lane[i + j] = a.lane[i + j] + a.lane[i + j + 2];
        r.lane[i + j + 2] = b.lane[i + j] + b.lane[i + j + 2];
      }
    }
    return r;
  }
  // Here: four sums in the first lanes.
  static ScalarVec Sum4(ScalarVec ab, ScalarVec cd) {
    ScalarVec r = Zero();
    for (int n = 0; n < 4; ++n) {
      const float* l = (n < 2 ? ab : cd).lane + n % 2 * 2;
      r.lane[n] = ((l[0] + l[1]) + (l[8] + l[9])) + ((l[4] + l[5]) + (l[12] + l[13]));
    }
    return r;
  }
  static Sums8 Sum8(ScalarVec a, ScalarVec b) {
    Sums8 r;
    std::memcpy(r.sum, a.lane, sizeof(r.sum) / 2);
    std::memcpy(r.sum + 4, b.lane, sizeof(r.sum) / 2);
    return r;
  }
  static ScalarVec Sum16(Sums8 a, Sums8 b) {
    ScalarVec r;
    std::memcpy(r.lane, &a, sizeof(a));
    std::memcpy(r.lane + 8, &b, sizeof(b));
    return r;
  }

  // The same, which the compiler must keep in a register rather than load it again where it is
  // used: loads are as scarce as multiply-adds.
  ScalarVec Held() const { return *this; }
  void Store(float* p) const { std::memcpy(p, lane, sizeof(lane)); }
  void Store(BF16* p) const {
    for (int i = 0; i < 16; ++i) p[i] = ToBF16(lane[i]);
  }
  void Store(F16* p) const {
    for (int i = 0; i < 16; ++i) p[i] = ToF16(lane[i]);
  }
  void Store(F8* p) const {
    for (int i = 0; i < 16; ++i) p[i] = ToF8(lane[i]);
  }
  // Rounds to the nearest integer, ties to even. REQUIRES: all lanes are in [-127, 127].
  void Store(int8_t* p) const {
    constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>((lane[i] + kShift) - kShift);
  }

  // The sum of the lanes: halves are added to each other until one lane is left.
  float SumLanes() const {
    ScalarVec r = *this;
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) r.lane[i] += r.lane[i + half];
    }
    return r.lane[0];
  }
  // The largest lane. REQUIRES: none is NaN.
  float MaxLanes() const {
    float m = lane[0];
    for (float l : lane) m = l > m ? l : m;
    return m;
  }
  float First() const { return lane[0]; }

  // Lanes [0, n) of a, the others of b. Any n: below 0 is taken for 0, above 16 for 16.
  static ScalarVec FirstOf(int n, ScalarVec a, ScalarVec b) {
    for (int i = n < 0 ? 0 : n; i < 16; ++i) a.lane[i] = b.lane[i];
    return a;
  }
  // 2^n for each lane 1.5 * 2^23 + n, n in [-126, 127]: the low bits of such a float are n, and
  // n + 127 shifted into the exponent is 2^n.
  static ScalarVec PowerOfTwo(ScalarVec x) {
    for (float& l : x.lane) l = std::bit_cast<float>((std::bit_cast<uint32_t>(l) + 127u) << 23);
    return x;
  }

  friend ScalarVec operator+(ScalarVec a, ScalarVec b) {
    return Each(a, b, [](float x, float y) { return x + y; });
  }
  friend ScalarVec operator-(ScalarVec a, ScalarVec b) {
    return Each(a, b, [](float x, float y) { return x - y; });
  }
  friend ScalarVec operator*(ScalarVec a, ScalarVec b) {
    return Each(a, b, [](float x, float y) { return x * y; });
  }
  friend ScalarVec operator/(ScalarVec a, ScalarVec b) {
    return Each(a, b, [](float x, float y) { return x / y; });
  }
  // a * b + c, rounded once.
  friend ScalarVec Fma(ScalarVec a, ScalarVec b, ScalarVec c) {
    for (int i = 0; i < 16; ++i) c.lane[i] = std::fma(a.lane[i], b.lane[i], c.lane[i]);
    return c;
  }
  // Max and Min give b where either is NaN, as the instructions of x86 do. Kernels rely on it.
  friend ScalarVec Max(ScalarVec a, ScalarVec b) {
    return Each(a, b, [](float x, float y) { return x > y ? x : y; });
  }
  friend ScalarVec Min(ScalarVec a, ScalarVec b) {
    return Each(a, b, [](float x, float y) { return x < y ? x : y; });
  }

 private:
  static float Float(float x) { return x; }
  static float Float(BF16 x) { return ToFloat(x); }
  static float Float(F16 x) { return ToFloat(x); }
  static float Float(F8 x) { return ToFloat(x); }
  static float Float(int8_t x) { return static_cast<float>(x); }
  static ScalarVec Spread(const BF16* p) {
    ScalarVec r;
    for (int i = 0; i < 16; ++i) r.lane[i] = ToFloat(p[2 * i]);
    return r;
  }
  template <typename F>
  static ScalarVec Each(ScalarVec a, ScalarVec b, F f) {
    for (int i = 0; i < 16; ++i) a.lane[i] = f(a.lane[i], b.lane[i]);
    return a;
  }
};

}  // namespace lamina
