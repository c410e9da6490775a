// Linear layers on a CUDA device: y = x W^T + b on tensor cores with fp32 accumulation, by cuBLAS
// with plain weights as they are in the checkpoint, and by a kernel of ours with quantized ones
// (multiply_codes.h).
//
// Tensor cores multiply operands of one type, and x is fp32. LinearPrecision chooses what is done:
//
//   kSplit    x = high + low, both in the weights' dtype. This leaves at most 2^-16 of x with bf16
//             weights and 2^-22 with fp16, so the error of a sum is at most that part of
//             sum |x w|, besides that of the fp32 accumulation. It takes twice the operations, but
//             reads the weights once for up to kStackedRows rows, where reading them is what
//             bounds a linear layer.
//   kRounded  x is rounded to the weights' dtype, as frameworks do. The error is up to 2^-8 of
//             sum |x w| with bf16 weights and 2^-11 with fp16.
//
// With fp16 weights each row of x is first scaled by a power of two, so that nothing overflows.
// With fp32 weights x is taken as it is (no TF32). Quantized weights lose nothing, and x is scaled
// and taken as with fp16 weights.
//
// Layers with plain weights are not batch-invariant: cuBLAS chooses its kernel by the number of
// rows, so the last bits of a row depend on it. Those with quantized weights are. The same call
// gives the same bits again.
//
// libcublas is loaded when the first Linear is created, so programs start on machines without it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/quantized_weights.h"

namespace lamina::cuda {

enum class LinearPrecision { kSplit, kRounded };

// The most rows whose high and low parts share one read of the weights.
inline constexpr int64_t kStackedRows = 64;

// The weights of one layer; owns nothing. If `data` is not aligned to 16 bytes, calls are slower.
struct LinearWeights {
  const void* data = nullptr;  // [out_features, in_features] of `dtype`, row-major, device
  DType dtype = DType::kBF16;  // not kF8
  int64_t out_features = 0;
  int64_t in_features = 0;
  // If it has codes, these are the weights, and there is no `data`.
  QuantizedWeights quantized = {};

  // The inputs that a call needs room for.
  int64_t num_places() const {
    return quantized.codes == nullptr ? in_features : quantized.num_places;
  }
};

// The largest call. It sizes the workspace, which is allocated once, so that calls can be recorded
// in a graph.
struct LinearLimits {
  int64_t max_rows = 0;
  int64_t max_in_features = 0;  // LinearWeights::num_places
  int64_t max_out_features = 0;
};

// Runs linear layers on one stream. Owns the workspace. Thread: the stream's owner.
class Linear {
 public:
  // Borrows the stream. kNotFound, saying where it was looked for, if there is no libcublas or it
  // lacks a function; kOutOfSpace if the device has no memory left for the workspace.
  static Result<std::unique_ptr<Linear>> Create(const LinearLimits& limits,
                                                LinearPrecision precision, Stream& stream);
  virtual ~Linear() = default;

  // y[r, o] = sum_i x[r, i] w[o, i] (+ bias[o]). x: [rows, in_features] fp32; bias: [out_features]
  // fp32 or null; y: [rows, out_features] fp32, no overlap with x; all device memory. REQUIRES: the
  // sizes are within the limits, the weights are not kF8.
  virtual void Run(const LinearWeights& weights, const float* x, int64_t rows, const float* bias,
                   float* y) = 0;
};

}  // namespace lamina::cuda
