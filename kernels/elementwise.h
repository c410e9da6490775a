// The operators of a slice that touch each element once. All in fp32, row-wise, batch-invariant,
// with the same bits on every instruction set. They run on the calling thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/ids.h"

namespace lamina {

// y[r] = table[tokens[r]]. table: [vocab, dim] of `dtype`. REQUIRES: every token in [0, vocab).
void Embedding(const void* table, DType dtype, int64_t dim, std::span<const TokenId> tokens,
               float* y);

// y = x / sqrt(mean(x^2) + eps) * weight. x, y: [rows, dim]; weight: [dim], null: ones. y may be x.
void RmsNorm(const float* x, const float* weight, float eps, int64_t rows, int64_t dim, float* y);

// Rotary position embedding: the pairs of each head turn by positions[r] * inv_freq[j], where pair
// j is (j, j + rotary_dim / 2), or (2 j, 2 j + 1) if they are interleaved. x, y: [rows, num_heads,
// head_dim]; inv_freq: [rotary_dim / 2]; elements from rotary_dim (even) on are copied. y may be x.
// Angles are formed in fp32 as PyTorch forms them: float(position) * inv_freq.
struct RopeShape {
  int num_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;
  bool interleaved = false;
};
void Rope(const float* x, std::span<const int32_t> positions, std::span<const float> inv_freq,
          const RopeShape& shape, float* y);

// y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias. x, y: [rows, dim]; weight,
// bias: [dim], null: ones and zeros. y may be x.
struct LayerNormWeights {
  const float* weight = nullptr;
  const float* bias = nullptr;
};
void LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int64_t rows,
               int64_t dim, float* y);

// y = silu(gate) * up, n elements. y may be either input.
void SiluMul(const float* gate, const float* up, int64_t n, float* y);

// y = gelu(gate) * up with gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), n
// elements (Hendrycks & Gimpel 2016, section 2). y may be either input.
void GeluMul(const float* gate, const float* up, int64_t n, float* y);

// y = silu(x), y = gelu(x) by its tanh formula, y = gelu(x) = x / 2 * (1 + erf(x / sqrt(2))); n
// elements. y may be x. The error function is within 2e-7 (Abramowitz & Stegun 1964, 7.1.26).
void Silu(const float* x, int64_t n, float* y);
void GeluTanh(const float* x, int64_t n, float* y);
void Gelu(const float* x, int64_t n, float* y);

// y = max(x, 0), n elements; NaN stays. y may be x.
void Relu(const float* x, int64_t n, float* y);

// y = x * factor, n elements. y may be x.
void Scale(const float* x, float factor, int64_t n, float* y);

// y = cap * tanh(x / cap), n elements. y may be x. REQUIRES: cap > 0.
void SoftCap(const float* x, float cap, int64_t n, float* y);

// y = a + b, y = a * b, n elements. y may be either input.
void Add(const float* a, const float* b, int64_t n, float* y);
void Mul(const float* a, const float* b, int64_t n, float* y);

// Converts n elements between fp32 and `dtype` (round to nearest even; kF8 saturates, as ToF8).
void ConvertFromFloat(const float* x, int64_t n, DType dtype, void* y);
void ConvertToFloat(const void* x, DType dtype, int64_t n, float* y);

}  // namespace lamina
