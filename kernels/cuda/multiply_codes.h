// Linear layers whose weights are quantized: y = x W^T + b on tensor cores. Internal to
// kernels/cuda/linear.h.
//
// Codes are exact in fp16, and x, scaled by a power of two for each row, is taken in one or two
// parts of fp16. Sums over the inputs of a group are fp32; they are multiplied by the group's scale
// and added up in fp32. So nothing is lost of the weights, and of x what linear.h says of fp16.
//
// What should bound it, with few rows, is reading the codes: a lane takes about 14 instructions for
// the 8 codes of a step, and two multiplications for each of two tiles.
//
// Batch-invariant: a block's eight warps share the inputs, always in the same way, and rows are
// columns of a multiplication, which do not depend on each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/quantized_weights.h"

namespace lamina::cuda {

// The rows of x, in `parts` parts, as tensor cores take them.
size_t SplitBytes(int64_t rows, int64_t num_places, int parts);

struct CodeProduct {
  QuantizedWeights weights;
  int64_t out_features = 0;
  int64_t in_features = 0;
  const float* x = nullptr;  // [rows, in_features]
  int64_t rows = 0;
  const float* bias = nullptr;  // [out_features] or null
  float* y = nullptr;           // [rows, out_features]
  int parts = 2;                // of x: 1 or 2
};

// All pointers are to device memory. split: SplitBytes of scratch memory; factors: [rows] of it.
// REQUIRES: rows > 0.
void MultiplyCodes(const CodeProduct& product, void* split, float* factors, Stream& stream);

}  // namespace lamina::cuda
