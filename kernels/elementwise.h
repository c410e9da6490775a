// The operators of a slice other than attention and linear layers: embedding, norms, rotary
// embedding, activations, conversions. Memory is the caller's. Tensors are dense, row-major fp32
// unless stated otherwise. Every row is computed alone, so results do not depend on the batch, and
// they have the same bits on every instruction set.
//
// Thread: any. All work is done on the calling thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/ids.h"

namespace lamina {

// y[r] = table[tokens[r]]. table: [vocab, dim] of `dtype`; y: [tokens.size(), dim]. REQUIRES: every
// token is in [0, vocab).
void Embedding(const void* table, DType dtype, int64_t dim, std::span<const TokenId> tokens,
               float* y);

// y = x / sqrt(mean(x^2) + eps) * weight for each row (Zhang & Sennrich 2019). x, y: [rows, dim];
// weight: [dim], null: ones. y may be x.
void RmsNorm(const float* x, const float* weight, float eps, int64_t rows, int64_t dim, float* y);

// The heads that Rope rotates.
struct RopeShape {
  int num_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;        // even, at most head_dim; the other elements of a head are copied
  bool interleaved = false;  // pair j is (2 j, 2 j + 1), else (j, j + rotary_dim / 2)
  float scale = 1;           // of the rotated elements
};

// Rotary position embedding (Su et al. 2021, section 3.2): pair j of each head of row r is rotated
// by the angle positions[r] * inv_freq[j] and multiplied by shape.scale. The angle is formed in
// fp32 as PyTorch forms it, float(position) * inv_freq. x, y: [rows, num_heads, head_dim];
// positions: [rows]; inv_freq: [rotary_dim / 2]. y may be x.
void Rope(const float* x, std::span<const int32_t> positions, std::span<const float> inv_freq,
          const RopeShape& shape, float* y);

struct LayerNormWeights {
  const float* weight = nullptr;  // [sets, dim], null: ones
  const float* bias = nullptr;    // [sets, dim], null: zeros
  int sets = 1;                   // row r has those of set r % sets
};

// y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias for each row (Ba et al.
// 2016). x, y: [rows, dim]. y may be x.
void LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int64_t rows,
               int64_t dim, float* y);

// Arrays of the following operators, up to Mul, are [n], and y may be an input.

// y = silu(gate) * up with silu(x) = x / (1 + e^-x).
void SiluMul(const float* gate, const float* up, int64_t n, float* y);

// y = g * sigmoid(1.702 g) * (u + 1), with g = min(gate, limit) and u = up limited to [-limit,
// limit]
// ("gpt-oss-120b & gpt-oss-20b Model Card", 2025, section 2.2). REQUIRES: limit > 0.
void SwigluOai(const float* gate, const float* up, float limit, int64_t n, float* y);

// y = gelu(gate) * up with gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
// (Hendrycks & Gimpel 2016, section 2).
void GeluMul(const float* gate, const float* up, int64_t n, float* y);

// y = silu(x).
void Silu(const float* x, int64_t n, float* y);

// y = gelu(x) by the tanh formula of GeluMul.
void GeluTanh(const float* x, int64_t n, float* y);

// y = gelu(x) = x / 2 * (1 + erf(x / sqrt(2))). The error function is within 2e-7 (Abramowitz &
// Stegun 1964, 7.1.26).
void Gelu(const float* x, int64_t n, float* y);

// y = max(x, 0); NaN stays NaN.
void Relu(const float* x, int64_t n, float* y);

// y = x * factor.
void Scale(const float* x, float factor, int64_t n, float* y);

// y = cap * tanh(x / cap). REQUIRES: cap > 0.
void SoftCap(const float* x, float cap, int64_t n, float* y);

// y = a + b.
void Add(const float* a, const float* b, int64_t n, float* y);

// y = a * b.
void Mul(const float* a, const float* b, int64_t n, float* y);

// y = sigmoid(gate[r]) * x for each row r, with sigmoid(g) = 1 / (1 + e^-g). gate: [rows]; x, y:
// [rows, dim]. y may be x.
void SigmoidGate(const float* gate, const float* x, int64_t rows, int64_t dim, float* y);

// Queries of late positions, which have more tokens to choose from, are made larger, in steps of
// `period` positions: by 1 + scale * ln(1 + floor((position + 1) / period)) (Nakanishi,
// Scalable-Softmax Is Superior for Attention, 2025, section 3, as Llama 4 has it).
struct PositionGrowth {
  float scale = 0;
  float period = 1;  // REQUIRES: > 0
};

// y = x times the factor of its row's position. positions: [rows], none negative; x, y: [rows,
// dim]. y may be x.
void GrowByPosition(const float* x, std::span<const int32_t> positions,
                    const PositionGrowth& growth, int64_t dim, float* y);

// Converts fp32 to `dtype`, rounding to nearest even. To kF8 it saturates: what is beyond +-448,
// infinities too, becomes +-448. x: [n]; y: [n] of `dtype`, no overlap with x. REQUIRES: `dtype`
// has no scales; kernels/kv_rows.h has those.
void ConvertFromFloat(const float* x, int64_t n, DType dtype, void* y);

// Converts `dtype` to fp32, exactly. x: [n] of `dtype`; y: [n], no overlap with x. REQUIRES:
// `dtype` has no scales.
void ConvertToFloat(const void* x, DType dtype, int64_t n, float* y);

}  // namespace lamina
