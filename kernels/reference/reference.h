// Every operator in its plainest form: one loop per sum, one thread, no vectors. What the kernels
// are tested against, and the place to read what an operator means. What is more than one rounding
// computes in double, but Linear is the exact sequence of fused multiply-adds that kernels/linear.h
// promises.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"

namespace lamina::reference {

// Element i of an array of `dtype`, which need not be aligned.
float At(const void* array, DType dtype, int64_t i);

// y[r, o] = sum_i x[r, i] w[o, i] (+ bias[o]). weights: [out_features, in_features] row-major of
// `dtype`.
struct LinearShape {
  int64_t rows;
  int64_t out_features;
  int64_t in_features;
};
void Linear(const void* weights, DType dtype, const LinearShape& shape, const float* x,
            const float* bias, float* y);

// As lamina::Attention.
void Attention(const AttentionShape& shape, const KvView& kv, std::span<const AttentionRow> rows);

// As their namesakes in kernels/elementwise.h.
void Embedding(const void* table, DType dtype, int64_t dim, std::span<const TokenId> tokens,
               float* y);
void RmsNorm(const float* x, const float* weight, float eps, int64_t rows, int64_t dim, float* y);
void Rope(const float* x, std::span<const int32_t> positions, std::span<const float> inv_freq,
          const RopeShape& shape, float* y);
void LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int64_t rows,
               int64_t dim, float* y);
void SiluMul(const float* gate, const float* up, int64_t n, float* y);
void GeluMul(const float* gate, const float* up, int64_t n, float* y);
void Gelu(const float* x, int64_t n, float* y);
void Relu(const float* x, int64_t n, float* y);
void Scale(const float* x, float factor, int64_t n, float* y);
void SoftCap(const float* x, float cap, int64_t n, float* y);
void Add(const float* a, const float* b, int64_t n, float* y);

}  // namespace lamina::reference
