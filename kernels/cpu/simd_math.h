// Functions of vectors that kernels need beyond a vector type's own operations, written once over
// `class V` (simd_scalar.h says what that offers), so that they give the same bits on each.
#pragma once

#include "kernels/cpu/simd_scalar.h"

namespace lamina {

// Natural exponential, within 2 ulp for x in [-87.3, 88.3]. Any other x is clamped to that range,
// and NaN stays NaN. The method: x = n ln 2 + r with |r| <= ln(2) / 2; e^r is its Taylor series up
// to r^7, whose first omitted term r^8 / 8! is below 6e-9.
//
// The sampler for GPUs draws by the same bits: ExpOf in kernels/cuda/sampling.cu repeats these
// operations one by one.
template <class V>
LAMINA_SIMD V Exp(V x) {
  const V shift = V::Set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  // Min and Max return their second operand where one is NaN: x stands there.
  x = Max(V::Set(-87.3f), Min(V::Set(88.3f), x));
  const V shifted = Fma(x, V::Set(1.44269504f), shift);
  const V n = V::Zero() - (shifted - shift);
  V r = Fma(n, V::Set(0x1.62e4p-1f), x);  // ln 2 in two parts; the product with the first is exact
  r = Fma(n, V::Set(0x1.7f7d1cp-20f), r);
  V y = Fma(r, V::Set(1.0f / 5040), V::Set(1.0f / 720));
  y = Fma(y, r, V::Set(1.0f / 120));
  y = Fma(y, r, V::Set(1.0f / 24));
  y = Fma(y, r, V::Set(1.0f / 6));
  y = Fma(y, r, V::Set(0.5f));
  y = Fma(y, r, V::Set(1.0f));
  y = Fma(y, r, V::Set(1.0f));
  return y * V::PowerOfTwo(shifted);
}

// cap * tanh(x / cap), within about 1e-7 * cap, as tanh(u) = 1 - 2 / (e^2u + 1). Exp clamps, so a
// large |x| gives exactly cap or -cap; NaN stays NaN.
template <class V>
LAMINA_SIMD V SoftCapped(V x, V cap) {
  const V u = x / cap;
  const V one = V::Set(1.0f);
  return cap * (one - V::Set(2.0f) / (Exp(u + u) + one));
}

// Loads p[0, n), n <= 16, into the first n lanes; the others are 0. Reads nothing beyond.
template <class V, typename T>
LAMINA_SIMD V LoadFirst(const T* p, int64_t n) {
  T padded[16] = {};
  __builtin_memcpy(padded, p, static_cast<size_t>(n) * sizeof(T));
  return V::Load(padded);
}

// Stores the first n lanes, n <= 16, to p[0, n). Writes nothing beyond.
template <class V, typename T>
LAMINA_SIMD void StoreFirst(V v, T* p, int64_t n) {
  T padded[16];
  v.Store(padded);
  __builtin_memcpy(p, padded, static_cast<size_t>(n) * sizeof(T));
}

}  // namespace lamina
