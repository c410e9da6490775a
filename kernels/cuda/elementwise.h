// The operators of a slice other than attention and linear layers, on a CUDA device. They compute
// what the functions of the same names in kernels/elementwise.h do, which has the formulas, within
// a few units in the last place. All work in fp32 and row by row, and results do not depend on the
// batch.
//
// Tensors are dense, row-major fp32 unless stated otherwise; all pointers are to device memory,
// aligned to their elements. y may be an input where kernels/elementwise.h allows it. All work is
// done in the stream's order. With zero rows or elements nothing is launched.
//
// All are bound by memory: one read of each input and one write of each output.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/cuda/device.h"
#include "kernels/elementwise.h"

namespace lamina::cuda {

// y[r] = table[tokens[r]]. table: [vocab, dim] of `dtype`, not kF8; tokens: [rows]; y: [rows, dim].
// REQUIRES: every token is in [0, vocab).
void Embedding(const void* table, DType dtype, int64_t dim, const TokenId* tokens, int64_t rows,
               float* y, Stream& stream);

// x, y: [rows, dim]; weight: [dim], null: ones. To norm each head, pass rows * num_heads rows of
// head_dim elements.
void RmsNorm(const float* x, const float* weight, float eps, int64_t rows, int64_t dim, float* y,
             Stream& stream);

// sum = a + b and y = RmsNorm(sum) in one launch, with the same bits as Add followed by RmsNorm. a,
// b, sum, y: [rows, dim]; weight: [dim], null: ones. sum and y may each be a or b, but not the same
// one.
void AddRmsNorm(const float* a, const float* b, const float* weight, float eps, int64_t rows,
                int64_t dim, float* sum, float* y, Stream& stream);

// x, y: [rows, dim]; weights.weight: [sets, dim], null: ones; weights.bias: [sets, dim], null:
// zeros.
void LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int64_t rows,
               int64_t dim, float* y, Stream& stream);

// x, y: [rows, num_heads, head_dim]; positions: [rows]; inv_freq: [rotary_dim / 2].
void Rope(const float* x, const int32_t* positions, const float* inv_freq, const RopeShape& shape,
          int64_t rows, float* y, Stream& stream);

// All arrays of the following functions, up to Mul, are [n].
void SiluMul(const float* gate, const float* up, int64_t n, float* y, Stream& stream);
void SwigluOai(const float* gate, const float* up, float limit, int64_t n, float* y,
               Stream& stream);
// gelu by its tanh formula.
void GeluMul(const float* gate, const float* up, int64_t n, float* y, Stream& stream);
void Silu(const float* x, int64_t n, float* y, Stream& stream);
void GeluTanh(const float* x, int64_t n, float* y, Stream& stream);
void Gelu(const float* x, int64_t n, float* y, Stream& stream);
void Relu(const float* x, int64_t n, float* y, Stream& stream);
void Scale(const float* x, float factor, int64_t n, float* y, Stream& stream);
void SoftCap(const float* x, float cap, int64_t n, float* y, Stream& stream);
void Add(const float* a, const float* b, int64_t n, float* y, Stream& stream);
void Mul(const float* a, const float* b, int64_t n, float* y, Stream& stream);

// gate: [rows]; x, y: [rows, dim].
void SigmoidGate(const float* gate, const float* x, int64_t rows, int64_t dim, float* y,
                 Stream& stream);

// positions: [rows]; x, y: [rows, dim].
void GrowByPosition(const float* x, const int32_t* positions, const PositionGrowth& growth,
                    int64_t rows, int64_t dim, float* y, Stream& stream);

// Convert between fp32 and `dtype`, rounding to nearest even; kF8 gets the bits of base/dtype.h. x,
// y: [n], of which the untyped one is of `dtype`; no overlap.
void ConvertFromFloat(const float* x, int64_t n, DType dtype, void* y, Stream& stream);
void ConvertToFloat(const void* x, DType dtype, int64_t n, float* y, Stream& stream);

}  // namespace lamina::cuda
