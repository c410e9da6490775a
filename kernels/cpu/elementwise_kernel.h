// The operators that touch each element once, written once over `class V`.
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

template <class V>
void RmsNormRow(const float* x, const float* weight, float eps, int64_t dim, float* y) {
  V sum[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
  int64_t i = 0;
  for (; i + 64 <= dim; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const V v = V::Load(x + i + j * 16);
      sum[j] = Fma(v, v, sum[j]);
    }
  }
  for (; i < dim; i += 16) {
    const V v = LoadUpTo<V>(x + i, dim - i < 16 ? dim - i : 16);
    sum[0] = Fma(v, v, sum[0]);
  }
  const float squares = ((sum[0] + sum[1]) + (sum[2] + sum[3])).SumLanes();
  const V scale = V::Set(1.0f / __builtin_sqrtf(squares / static_cast<float>(dim) + eps));
  ForVectors<V>(dim, [&](int64_t at, int64_t n) { StoreUpTo(LoadUpTo<V>(x + at, n) * scale * LoadUpTo<V>(weight + at, n), y + at, n); });
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
    StoreUpTo(g / (V::Set(1.0f) + Exp(V::Zero() - g)) * LoadUpTo<V>(up + at, m), y + at, m);
  });
}

template <class V>
void ExpScaled(const float* x, float max, float scale, int64_t n, float* y) {
  ForVectors<V>(n, [&](int64_t at, int64_t m) { StoreUpTo(Exp((LoadUpTo<V>(x + at, m) - V::Set(max)) * V::Set(scale)), y + at, m); });
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
  }
}

template <class V>
void ConvertTo(const void* x, DType dtype, int64_t n, float* y) {
  switch (dtype) {
    case DType::kF32: return ConvertAll<V>(static_cast<const float*>(x), n, y);
    case DType::kBF16: return ConvertAll<V>(static_cast<const BF16*>(x), n, y);
    case DType::kF16: return ConvertAll<V>(static_cast<const F16*>(x), n, y);
  }
}

}  // namespace lamina
