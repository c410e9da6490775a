#include "kernels/cuda/linear.h"

#include <math.h>

#include <algorithm>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/multiply_codes.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/two_parts.cuh"

namespace lamina::cuda {
namespace {

constexpr int kThreads = 256;

// Splits rows of x, each scaled by a power of two if T is fp16, into high and low parts; factors
// gets what undoes the scaling. One block per row. x: [rows, dim]; high, low: [rows, dim] of T, low
// may be null; factors: [rows].
template <typename T>
__global__ void SplitRows(const float* x, int64_t dim, T* high, T* low, float* factors) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * dim;
  const int exponent = std::is_same_v<T, F16> ? ExponentFor(LargestOf<kThreads>(x + row, dim)) : 0;
  const float factor = ldexpf(1.0f, exponent);
  for (int64_t i = threadIdx.x; i < dim; i += kThreads) {
    const float scaled = x[row + i] * factor;
    T rounded;
    Store(scaled, &rounded);
    high[row + i] = rounded;
    if (low != nullptr) Store(scaled - Load(&rounded), low + row + i);
  }
  if (threadIdx.x == 0) factors[blockIdx.x] = ldexpf(1.0f, -exponent);
}

// y = (high + low) * factor of the row + bias. The grid is (rows, pieces of a row). high, low, y:
// [rows, out]; factors: [rows]; bias: [out]. low, factors and bias may be null; high may be y.
__global__ void FinishRows(const float* high, const float* low, const float* factors,
                           const float* bias, int64_t out, float* y) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * out;
  const float factor = factors == nullptr ? 1.0f : factors[blockIdx.x];
  for (int64_t o = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x; o < out;
       o += static_cast<int64_t>(gridDim.y) * kThreads) {
    const float sum = low == nullptr ? high[row + o] : high[row + o] + low[row + o];
    y[row + o] = bias == nullptr ? sum * factor : fmaf(sum, factor, bias[o]);
  }
}

class GemmLinear final : public Linear {
 public:
  GemmLinear(const LinearLimits& limits, LinearPrecision precision, Stream& stream)
      : limits_(limits), precision_(precision), stream_(stream) {}

  Status Allocate() {
    LAMINA_ASSIGN_OR_RETURN(gemm_, Gemm::Create(stream_));
    LAMINA_ASSIGN_OR_RETURN(
        x_, DeviceBuffer::Create(SplitBytes(limits_.max_rows, limits_.max_in_features, parts())));
    LAMINA_ASSIGN_OR_RETURN(
        factors_, DeviceBuffer::Create(static_cast<size_t>(limits_.max_rows) * sizeof(float)));
    if (!split()) return OkStatus();
    const int64_t stacked = 2 * std::min(limits_.max_rows, kStackedRows);
    LAMINA_ASSIGN_OR_RETURN(
        y_, DeviceBuffer::Create(static_cast<size_t>(stacked * limits_.max_out_features) *
                                 sizeof(float)));
    return OkStatus();
  }

  void Run(const LinearWeights& weights, const float* x, int64_t rows, const float* bias,
           float* y) override {
    if (rows == 0) return;
    if (weights.quantized.codes != nullptr) {
      return MultiplyCodes(
          {weights.quantized, weights.out_features, weights.in_features, x, rows, bias, y, parts()},
          x_.data(), factors_.as<float>(), stream_);
    }
    switch (weights.dtype) {
      case DType::kF32:
        Multiply(weights, x, rows, y);
        if (bias != nullptr) Finish(rows, weights.out_features, {y, nullptr, nullptr, bias}, y);
        return;
      case DType::kBF16: return RunHalf<BF16>(weights, x, rows, bias, y);
      case DType::kF16: return RunHalf<F16>(weights, x, rows, bias, y);
      case DType::kF8:
      case DType::kI8Scaled:
      case DType::kF8Scaled:
        return stream_.Fail(InternalError("a linear layer with weights in " +
                                          std::string(DTypeName(weights.dtype))));
    }
  }

 private:
  // Arguments of FinishRows, device memory. All but the first may be null.
  struct Sums {
    const float* high;
    const float* low;
    const float* factors;
    const float* bias;
  };

  bool split() const { return precision_ == LinearPrecision::kSplit; }
  int parts() const { return split() ? 2 : 1; }

  template <typename T>
  void RunHalf(const LinearWeights& weights, const float* x, int64_t rows, const float* bias,
               float* y) {
    const int64_t in = weights.in_features, out = weights.out_features;
    T* const high = x_.as<T>();
    T* const low = split() ? high + rows * in : nullptr;
    Launch(SplitRows<T>,
           {dim3(static_cast<unsigned>(rows)), dim3(kThreads), kBlockSumBytes<kThreads>}, stream_,
           x, in, high, low, factors_.as<float>());
    const float* const factors = std::is_same_v<T, F16> ? factors_.as<float>() : nullptr;
    // high and low lie behind each other: as one matrix of twice the rows they are multiplied by
    // one call, which reads the weights once.
    if (split() && rows <= kStackedRows) {
      float* const sums = y_.as<float>();
      Multiply(weights, high, 2 * rows, sums);
      Finish(rows, out, {sums, sums + rows * out, factors, bias}, y);
      return;
    }
    // With more rows the layer is no longer bound by reading the weights, and two calls need no
    // memory for sums.
    Multiply(weights, high, rows, y);
    if (split()) Multiply(weights, low, rows, y, /*add=*/true);
    if (factors != nullptr || bias != nullptr) Finish(rows, out, {y, nullptr, factors, bias}, y);
  }

  void Multiply(const LinearWeights& weights, const void* x, int64_t rows, float* y,
                bool add = false) {
    gemm_->Run(
        {x, weights.data, weights.dtype, rows, weights.in_features, weights.out_features, y, add});
  }

  void Finish(int64_t rows, int64_t out, const Sums& sums, float* y) {
    const int64_t pieces = std::min<int64_t>((out + kThreads - 1) / kThreads, 64);
    Launch(FinishRows,
           {dim3(static_cast<unsigned>(rows), static_cast<unsigned>(pieces)), dim3(kThreads), 0},
           stream_, sums.high, sums.low, sums.factors, sums.bias, out, y);
  }

  const LinearLimits limits_;
  const LinearPrecision precision_;
  Stream& stream_;
  std::unique_ptr<Gemm> gemm_;
  // [rows, in] high, then [rows, in] low if x is split; 16 bits. For codes as MultiplyCodes has it.
  DeviceBuffer x_;
  DeviceBuffer factors_;  // [rows] fp32
  DeviceBuffer y_;        // [2 * rows, out] fp32, the sums of the high and of the low parts
};

}  // namespace

Result<std::unique_ptr<Linear>> Linear::Create(const LinearLimits& limits,
                                               LinearPrecision precision, Stream& stream) {
  auto linear = std::make_unique<GemmLinear>(limits, precision, stream);
  LAMINA_RETURN_IF_ERROR(linear->Allocate());
  return std::unique_ptr<Linear>(std::move(linear));
}

}  // namespace lamina::cuda
