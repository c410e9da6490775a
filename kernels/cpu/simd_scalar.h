// Sixteen floats at a time in plain C++: what every vector type here offers, and the fallback for a CPU without AVX2.
//
// ScalarVec, Avx2Vec and Avx512Vec do the same arithmetic lane by lane and reduce lanes in the same order, so a kernel written once over
// `class V` gives the same bits on all of them: a sequence may move between machines of different kinds.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/float16.h"

#define LAMINA_SIMD [[gnu::always_inline]] inline

namespace lamina {

struct ScalarVec {
  static constexpr int kRegisters = 8;  // how many vectors the register file holds
  float lane[16];

  static ScalarVec Zero() { return Set(0); }
  static ScalarVec Set(float x) {
    ScalarVec r;
    for (float& l : r.lane) l = x;
    return r;
  }

  // 16 elements, converted.
  template <typename T>
  static ScalarVec Load(const T* p) {
    ScalarVec r;
    for (int i = 0; i < 16; ++i) r.lane[i] = Float(p[i]);
    return r;
  }
  // Elements 0, 2, 4, ... and elements 1, 3, 5, ... of 32.
  static ScalarVec LoadEven(const BF16* p) { return Spread(p); }
  static ScalarVec LoadOdd(const BF16* p) { return Spread(p + 1); }
  // 8 elements, the upper lanes 0.
  template <typename T>
  static ScalarVec LoadHalf(const T* p) {
    ScalarVec r = Zero();
    for (int i = 0; i < 8; ++i) r.lane[i] = Float(p[i]);
    return r;
  }
  // Sums of the lanes of 16 vectors, in two parts. First, of `kCount` of them (a multiple of 2, for Avx512Vec of 4) from `first` on, quads:
  // lane i of 4 is (v[i] + v[i + 8]) + (v[i + 4] + v[i + 12]). Then lane n of the result is (q[0] + q[2]) + (q[1] + q[3]) of v[n]'s quad.
  // Each class keeps the 64 floats of the 16 quads in the order that it likes.
  template <int kCount>
  static void StoreQuads(const ScalarVec (&v)[kCount], int first, float* quads) {
    for (int n = 0; n < kCount; ++n) {
      const float* l = v[n].lane;
      for (int i = 0; i < 4; ++i) quads[4 * (first + n) + i] = (l[i] + l[i + 8]) + (l[i + 4] + l[i + 12]);
    }
  }
  static ScalarVec SumQuads(const float* quads) {
    ScalarVec r;
    for (int n = 0; n < 16; ++n, quads += 4) r.lane[n] = (quads[0] + quads[2]) + (quads[1] + quads[3]);
    return r;
  }

  void Store(float* p) const { std::memcpy(p, lane, sizeof(lane)); }
  void Store(BF16* p) const {
    for (int i = 0; i < 16; ++i) p[i] = ToBF16(lane[i]);
  }
  void Store(F16* p) const {
    for (int i = 0; i < 16; ++i) p[i] = ToF16(lane[i]);
  }

  // Sum of the lanes: halves are added to each other until one lane is left.
  float SumLanes() const {
    ScalarVec r = *this;
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) r.lane[i] += r.lane[i + half];
    }
    return r.lane[0];
  }
  float MaxLanes() const {  // REQUIRES: no NaN
    float m = lane[0];
    for (float l : lane) m = l > m ? l : m;
    return m;
  }
  float First() const { return lane[0]; }

  // Lanes [0, n) of a, the rest of b.
  static ScalarVec FirstOf(int n, ScalarVec a, ScalarVec b) {
    for (int i = n < 0 ? 0 : n; i < 16; ++i) a.lane[i] = b.lane[i];
    return a;
  }
  // 2^n where x = 1.5 * 2^23 + n, n in [-126, 127].
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
  friend ScalarVec Fma(ScalarVec a, ScalarVec b, ScalarVec c) {  // a * b + c, rounded once
    for (int i = 0; i < 16; ++i) c.lane[i] = std::fma(a.lane[i], b.lane[i], c.lane[i]);
    return c;
  }
  // b where either is NaN.
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
