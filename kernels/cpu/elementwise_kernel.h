// The operators of kernels/elementwise.h, written once over `class V`. KernelTable has the shapes
// of their arguments. Tails of fewer than 16 elements are loaded and stored without touching
// anything beyond an array.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_math.h"

namespace lamina {

// Calls f(i, n) for [0, n) in pieces of 16, the last one shorter.
template <class V, class F>
LAMINA_SIMD void ForVectors(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, 16);
  if (i < n) f(i, n - i);
}

// Loads and stores p[0, n), 0 < n <= 16; lanes beyond are 0.
template <class V, typename T>
LAMINA_SIMD V LoadUpTo(const T* p, int64_t n) {
  return n == 16 ? V::Load(p) : LoadFirst<V>(p, n);
}
template <class V, typename T>
LAMINA_SIMD void StoreUpTo(V v, T* p, int64_t n) {
  if (n == 16) {
    v.Store(p);
  } else {
    StoreFirst(v, p, n);
  }
}

// p[at, at + n), or `otherwise` in every lane if p is null.
template <class V>
LAMINA_SIMD V LoadOr(const float* p, int64_t at, int64_t n, float otherwise) {
  return p == nullptr ? V::Set(otherwise) : LoadUpTo<V>(p + at, n);
}

// Sums over a row: calls sum = f(sum, v, n) with vectors v of 16 elements, of which the first n
// count and the others are 0, and returns the sum of the lanes of `sum`. Four sums take turns, so
// that their chains of dependent additions overlap. x: [dim].
template <class V, class F>
LAMINA_SIMD float SumOverRow(const float* x, int64_t dim, const F& f) {
  V sum[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
  int64_t i = 0;
  for (; i + 64 <= dim; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sum[j] = f(sum[j], V::Load(x + i + j * 16), 16);
  }
  for (; i < dim; i += 16) {
    const int64_t n = dim - i < 16 ? dim - i : 16;
    sum[0] = f(sum[0], LoadUpTo<V>(x + i, n), n);
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])).SumLanes();
}

template <class V>
void RmsNormRow(const float* x, const float* weight, float eps, int64_t dim, float* y) {
  const float squares = SumOverRow<V>(x, dim, [](V sum, V v, int64_t) { return Fma(v, v, sum); });
  const V scale = V::Set(1.0f / __builtin_sqrtf(squares / static_cast<float>(dim) + eps));
  ForVectors<V>(dim, [&](int64_t at, int64_t n) {
    StoreUpTo(LoadUpTo<V>(x + at, n) * scale * LoadOr<V>(weight, at, n, 1.0f), y + at, n);
  });
}

// In two passes, the mean first: E[x^2] - E[x]^2 would lose digits where the mean is large.
template <class V>
void LayerNormRow(const float* x, const LayerNormWeights& weights, float eps, int64_t dim,
                  float* y) {
  const auto count = static_cast<float>(dim);
  const V mean = V::Set(SumOverRow<V>(x, dim, [](V sum, V v, int64_t) { return sum + v; }) / count);
  const float squares = SumOverRow<V>(x, dim, [&](V sum, V v, int64_t n) {
    // Lanes that are not of the row hold -mean here and must not count.
    const V off = V::FirstOf(static_cast<int>(n), v - mean, V::Zero());
    return Fma(off, off, sum);
  });
  const V scale = V::Set(1.0f / __builtin_sqrtf(squares / count + eps));
  ForVectors<V>(dim, [&](int64_t at, int64_t n) {
    const V normed = (LoadUpTo<V>(x + at, n) - mean) * scale;
    StoreUpTo(
        Fma(normed, LoadOr<V>(weights.weight, at, n, 1.0f), LoadOr<V>(weights.bias, at, n, 0.0f)),
        y + at, n);
  });
}

template <class V>
void RotateHead(const float* x, const float* cos, const float* sin, int64_t half, float* y) {
  ForVectors<V>(half, [&](int64_t at, int64_t n) {
    const V a = LoadUpTo<V>(x + at, n), b = LoadUpTo<V>(x + half + at, n);
    const V c = LoadUpTo<V>(cos + at, n), s = LoadUpTo<V>(sin + at, n);
    StoreUpTo(a * c - b * s, y + at, n);
    StoreUpTo(b * c + a * s, y + half + at, n);
  });
}

template <class V>
void SiluMulAll(const float* gate, const float* up, int64_t n, float* y) {
  ForVectors<V>(n, [&](int64_t at, int64_t m) {
    const V g = LoadUpTo<V>(gate + at, m);
    StoreUpTo(g / (V::Set(1.0f) + Exp(V::Zero() - g)) * LoadOr<V>(up, at, m, 1.0f), y + at, m);
  });
}

// Min and Max give their second operand where one is NaN, so NaN stays.
template <class V>
void SwigluOaiAll(const float* gate, const float* up, float limit, int64_t n, float* y) {
  ForVectors<V>(n, [&](int64_t at, int64_t m) {
    const V g = Min(V::Set(limit), LoadUpTo<V>(gate + at, m));
    const V u = Min(V::Set(limit), Max(V::Set(-limit), LoadUpTo<V>(up + at, m)));
    const V one = V::Set(1.0f);
    StoreUpTo(g / (one + Exp(g * V::Set(-1.702f))) * (u + one), y + at, m);
  });
}

template <class V>
void GeluMulAll(const float* gate, const float* up, int64_t n, float* y) {
  ForVectors<V>(n, [&](int64_t at, int64_t m) {
    const V g = LoadUpTo<V>(gate + at, m);
    const V cubed = g * g * g;
    // (1 + tanh(u)) / 2 is 1 / (1 + e^-2u).
    const V minus_2u = Fma(cubed, V::Set(0.044715f), g) * V::Set(-1.5957691216f);
    StoreUpTo(g / (V::Set(1.0f) + Exp(minus_2u)) * LoadOr<V>(up, at, m, 1.0f), y + at, m);
  });
}

// gelu(x) = max(x, 0) - |x| / 2 * erfc(|x| / sqrt(2)), with erfc(z) = (a1 t + ... + a5 t^5)
// e^(-z^2) and t = 1 / (1 + 0.3275911 z) (Abramowitz & Stegun 1964, 7.1.26).
template <class V>
void GeluAll(const float* x, int64_t n, float* y) {
  ForVectors<V>(n, [&](int64_t at, int64_t m) {
    const V v = LoadUpTo<V>(x + at, m);
    // |x|, at most 20, beyond which gelu does not change: an infinite one would give infinity times
    // 0 below. Min and Max give their second operand where one is NaN, so NaN stays.
    const V size = Min(V::Set(20.0f), Max(V::Zero() - v, v));
    const V t = V::Set(1.0f) / Fma(size, V::Set(0.3275911f * 0.70710678f), V::Set(1.0f));
    V sum = Fma(t, V::Set(1.061405429f), V::Set(-1.453152027f));
    sum = Fma(sum, t, V::Set(1.421413741f));
    sum = Fma(sum, t, V::Set(-0.284496736f));
    sum = Fma(sum, t, V::Set(0.254829592f));
    const V erfc = sum * t * Exp(v * v * V::Set(-0.5f));
    StoreUpTo(Max(V::Zero(), v) - size * V::Set(0.5f) * erfc, y + at, m);
  });
}

template <class V>
void SoftCapAll(const float* x, float cap, int64_t n, float* y) {
  ForVectors<V>(n, [&](int64_t at, int64_t m) {
    StoreUpTo(SoftCapped(LoadUpTo<V>(x + at, m), V::Set(cap)), y + at, m);
  });
}

template <class V>
void ExpScaled(const float* x, float max, float scale, int64_t n, float* y) {
  ForVectors<V>(n, [&](int64_t at, int64_t m) {
    StoreUpTo(Exp((LoadUpTo<V>(x + at, m) - V::Set(max)) * V::Set(scale)), y + at, m);
  });
}

template <class V, typename From, typename To>
LAMINA_SIMD void ConvertAll(const From* x, int64_t n, To* y) {
  ForVectors<V>(n, [&](int64_t at, int64_t m) { StoreUpTo(LoadUpTo<V>(x + at, m), y + at, m); });
}

template <class V>
void ConvertFrom(const float* x, int64_t n, DType dtype, void* y) {
  switch (dtype) {
    case DType::kF32: return ConvertAll<V>(x, n, static_cast<float*>(y));
    case DType::kBF16: return ConvertAll<V>(x, n, static_cast<BF16*>(y));
    case DType::kF16: return ConvertAll<V>(x, n, static_cast<F16*>(y));
    case DType::kF8: return ConvertAll<V>(x, n, static_cast<F8*>(y));
    case DType::kI8Scaled:
    case DType::kF8Scaled: return;  // required not to be
  }
}

template <class V>
void ConvertTo(const void* x, DType dtype, int64_t n, float* y) {
  switch (dtype) {
    case DType::kF32: return ConvertAll<V>(static_cast<const float*>(x), n, y);
    case DType::kBF16: return ConvertAll<V>(static_cast<const BF16*>(x), n, y);
    case DType::kF16: return ConvertAll<V>(static_cast<const F16*>(x), n, y);
    case DType::kF8: return ConvertAll<V>(static_cast<const F8*>(x), n, y);
    case DType::kI8Scaled:
    case DType::kF8Scaled: return;  // required not to be
  }
}

// The codes of RoundWithScale. T: int8_t or F8, whose largest code is `most`.
template <class V, typename T>
LAMINA_SIMD float RoundAllWithScale(const float* x, int64_t n, float most, T* codes) {
  // x - x is 0, but NaN if x is infinite or NaN. Max gives its second operand where one is NaN, so
  // the largest magnitude is that of the numbers.
  V largest = V::Zero(), bad = V::Zero();
  ForVectors<V>(n, [&](int64_t at, int64_t m) {
    const V v = LoadUpTo<V>(x + at, m);
    largest = Max(Max(V::Zero() - v, v), largest);
    bad = bad + (v - v);
  });
  const float scale = largest.MaxLanes() / most + bad.SumLanes();
  const bool finite = scale < __builtin_inff();
  if (!finite || scale == 0) {
    __builtin_memset(static_cast<void*>(codes), 0, static_cast<size_t>(n));
    return finite ? 0 : __builtin_nanf("");
  }
  // A scale that is subnormal is not precise, and would make larger codes than there are.
  const V divisor = V::Set(scale), upper = V::Set(most), lower = V::Set(-most);
  ForVectors<V>(n, [&](int64_t at, int64_t m) {
    StoreUpTo(Max(lower, Min(upper, LoadUpTo<V>(x + at, m) / divisor)), codes + at, m);
  });
  return scale;
}

template <class V>
float RoundScaled(const float* x, int64_t n, DType dtype, void* codes) {
  return dtype == DType::kI8Scaled ? RoundAllWithScale<V>(x, n, 127, static_cast<int8_t*>(codes))
                                   : RoundAllWithScale<V>(x, n, kMaxF8, static_cast<F8*>(codes));
}

}  // namespace lamina
