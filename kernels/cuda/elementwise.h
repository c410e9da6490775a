// The operators of a slice that touch each element once, on a CUDA device. They mean what their
// namesakes in kernels/elementwise.h do, within a few units in the last place: all in fp32,
// row-wise, batch-invariant. Pointers are device memory, dense, aligned to their elements; y may be
// an input where the namesake allows it. Zero rows or elements are fine: nothing is launched.
//
// All are bound by memory: one read of each input and one write of each output.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/cuda/device.h"
#include "kernels/elementwise.h"

namespace lamina::cuda {

// y[r] = table[tokens[r]]. table: [vocab, dim] of `dtype`, not kF8; tokens: [rows]. REQUIRES: every
// token in [0, vocab).
void Embedding(const void* table, DType dtype, int64_t dim, const TokenId* tokens, int64_t rows,
               float* y, Stream& stream);

// x, y: [rows, dim]; weight: [dim], null: ones. A head norm is one of rows * num_heads rows of
// head_dim.
void RmsNorm(const float* x, const float* weight, float eps, int64_t rows, int64_t dim, float* y,
             Stream& stream);

// sum = a + b and y = RmsNorm(sum) in one pass. All [rows, dim]; sum and y may each be a or b, but
// not the same one. The same bits as Add, then RmsNorm.
void AddRmsNorm(const float* a, const float* b, const float* weight, float eps, int64_t rows,
                int64_t dim, float* sum, float* y, Stream& stream);

// weights: [dim] each, null: ones and zeros.
void LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int64_t rows,
               int64_t dim, float* y, Stream& stream);

// x, y: [rows, num_heads, head_dim]; positions: [rows]; inv_freq: [rotary_dim / 2]; all device
// memory.
void Rope(const float* x, const int32_t* positions, const float* inv_freq, const RopeShape& shape,
          int64_t rows, float* y, Stream& stream);

// n elements each.
void SiluMul(const float* gate, const float* up, int64_t n, float* y, Stream& stream);
// Tanh formula.
void GeluMul(const float* gate, const float* up, int64_t n, float* y, Stream& stream);
void Silu(const float* x, int64_t n, float* y, Stream& stream);
void GeluTanh(const float* x, int64_t n, float* y, Stream& stream);
void Gelu(const float* x, int64_t n, float* y, Stream& stream);
void Relu(const float* x, int64_t n, float* y, Stream& stream);
void Scale(const float* x, float factor, int64_t n, float* y, Stream& stream);
void SoftCap(const float* x, float cap, int64_t n, float* y, Stream& stream);
void Add(const float* a, const float* b, int64_t n, float* y, Stream& stream);
void Mul(const float* a, const float* b, int64_t n, float* y, Stream& stream);

// Between fp32 and `dtype`, round to nearest even; kF8 to the bits of base/dtype.h.
void ConvertFromFloat(const float* x, int64_t n, DType dtype, void* y, Stream& stream);
void ConvertToFloat(const void* x, DType dtype, int64_t n, float* y, Stream& stream);

}  // namespace lamina::cuda
