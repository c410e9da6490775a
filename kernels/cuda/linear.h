// y = x W^T + b on a CUDA device, by cuBLAS on tensor cores: weights as they stand in the
// checkpoint, fp32 accumulation.
//
// cuBLAS multiplies operands of one type, and x is fp32. LinearPrecision says what becomes of it:
//   kSplit    x = high + low, both in the weights' dtype, which leaves 2^-16 of x with bf16 weights
//   and 2^-22 with fp16: the error of a sum is at
//             most that part of sum |x w|, beside that of the fp32 accumulation. Twice the
//             operations; the same bytes of weights for up to kStackedRows rows, where linear
//             layers are bound by them.
//   kRounded  x is rounded to the weights' dtype, as frameworks do it: up to 2^-8 (2^-11) of sum |x
//   w|.
// With fp16 weights each row of x is scaled by a power of two first, so that nothing overflows.
// fp32 weights take x as it is (no TF32).
//
// Not batch-invariant: cuBLAS chooses its kernel by the number of rows, so the last bits of a row
// depend on it. The same call gives the same bits again.
//
// libcublas is loaded when the first Linear is made: programs start on machines without it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

enum class LinearPrecision { kSplit, kRounded };

// Up to which high and low parts share one read of the weights.
inline constexpr int64_t kStackedRows = 64;

// Device memory, dense; data aligned to 16 bytes, or else slower.
struct LinearWeights {
  const void* data = nullptr;  // [out_features, in_features] of `dtype`, row-major
  DType dtype = DType::kBF16;  // not kF8
  int64_t out_features = 0;
  int64_t in_features = 0;
};

// The largest call; it sizes the workspace, which is allocated once, so that calls can be captured
// into a graph.
struct LinearLimits {
  int64_t max_rows = 0;
  int64_t max_in_features = 0;
  int64_t max_out_features = 0;
};

// Thread: the stream's owner.
class Linear {
 public:
  // Borrows the stream, on which everything runs. kNotFound: no libcublas, with where it was looked
  // for. kOutOfSpace.
  static Result<std::unique_ptr<Linear>> Create(const LinearLimits& limits,
                                                LinearPrecision precision, Stream& stream);
  virtual ~Linear() = default;

  // y[r, o] = sum_i x[r, i] w[o, i] (+ bias[o]). x: [rows, in_features] fp32; bias: [out_features]
  // fp32 or null; y: [rows, out_features] fp32, no overlap with x. REQUIRES: within the limits.
  virtual void Run(const LinearWeights& weights, const float* x, int64_t rows, const float* bias,
                   float* y) = 0;

  virtual int64_t scratch_bytes() const = 0;  // of device memory
};

}  // namespace lamina::cuda
