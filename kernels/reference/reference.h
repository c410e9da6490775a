// Every operator in its plainest form: one loop per sum, one thread, no vectors. The kernels are
// tested against these functions, and this is the place to read what an operator means. Operators
// that round more than once compute in double, but Linear is the exact sequence of fused
// multiply-adds that kernels/linear.h promises.
//
// Tensors are dense, row-major fp32 unless stated otherwise. Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/weight_format.h"

namespace lamina::reference {

// Element i of an array of `dtype`, which need not be aligned; of a type with scales the code.
float At(const void* array, DType dtype, int64_t i);

struct LinearShape {
  int64_t rows;
  int64_t out_features;
  int64_t in_features;
};

// y[r, o] = sum_i x[r, i] w[o, i] (+ bias[o]), added up in the order i = 0, 1, 2, ... weights:
// [out_features, in_features] of `dtype`, which need not be aligned; x: [rows, in_features]; bias:
// [out_features] or null; y: [rows, out_features].
void Linear(const void* weights, DType dtype, const LinearShape& shape, const float* x,
            const float* bias, float* y);

// The numbers that quantized weights stand for (kernels/weight_format.h), [out_features,
// in_features].
std::vector<float> Dequantize(const QuantizedMatrix& matrix);

// Computes out = softmax(scale * q k^T) v and lse for every row and query head, in two passes over
// the row's tokens. A row with num_tokens == 0 gets out = 0 and lse = -inf.
void Attention(const AttentionShape& shape, const KvView& kv, std::span<const AttentionRow> rows);

// RoundWithScale of kernels/kv_rows.h, with the same arguments.
float RoundWithScale(const float* x, int64_t n, DType dtype, void* codes);

// The operators of kernels/elementwise.h, with the same arguments and shapes. Unlike there, the
// weights and biases of the two norms must not be null.
void Embedding(const void* table, DType dtype, int64_t dim, std::span<const TokenId> tokens,
               float* y);
void RmsNorm(const float* x, const float* weight, float eps, int64_t rows, int64_t dim, float* y);
void Rope(const float* x, std::span<const int32_t> positions, std::span<const float> inv_freq,
          const RopeShape& shape, float* y);
void LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int64_t rows,
               int64_t dim, float* y);
void SiluMul(const float* gate, const float* up, int64_t n, float* y);
void SwigluOai(const float* gate, const float* up, float limit, int64_t n, float* y);
void GeluMul(const float* gate, const float* up, int64_t n, float* y);
void Gelu(const float* x, int64_t n, float* y);
void Relu(const float* x, int64_t n, float* y);
void Scale(const float* x, float factor, int64_t n, float* y);
void SoftCap(const float* x, float cap, int64_t n, float* y);
void SigmoidGate(const float* gate, const float* x, int64_t rows, int64_t dim, float* y);
void GrowByPosition(const float* x, std::span<const int32_t> positions,
                    const PositionGrowth& growth, int64_t dim, float* y);
void Add(const float* a, const float* b, int64_t n, float* y);

}  // namespace lamina::reference
