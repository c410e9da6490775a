#if LAMINA_HAS_CUDA
#include <gtest/gtest.h>

#include "cuda_cases.h"
#include "kernels/cuda/host/upload_quantized.h"
#include "kernels/cuda/linear.h"
#include "kernels/reference/reference.h"
#include "quantized_cases.h"

namespace lamina::cuda {
namespace cuda_quantized_linear_test {

constexpr double kAccumulation = 0x1p-20;  // of fp32 sums of these lengths

class CudaQuantizedLinear : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    staged_ = StagedStream::Create(0).value();
  }

  struct Uploaded {
    DeviceBuffer memory;
    LinearWeights weights;
  };
  // Into memory that was NaN.
  Uploaded UploadMatrix(const QuantizedMatrix& m) {
    const QuantizedLayout layout(m.format, m.out_features, m.in_features);
    Uploaded up{DeviceBuffer::Create(layout.size_bytes).value(), {}};
    FillOnDevice(up.memory.data(), 0xff, layout.size_bytes, staged_->stream());
    DeviceBuffer scratch;
    up.weights = UploadQuantized(m, up.memory.as<std::byte>(), scratch, *staged_);
    EXPECT_TRUE(staged_->Synchronize().ok());
    return up;
  }

  std::vector<float> Multiply(const LinearWeights& weights, const std::vector<float>& x,
                              const std::vector<float>* bias,
                              LinearPrecision precision = LinearPrecision::kSplit) {
    const int64_t rows = std::ssize(x) / weights.in_features;
    const DeviceBuffer device_x = Upload(x),
                       device_bias = bias != nullptr ? Upload(*bias) : DeviceBuffer();
    const std::unique_ptr<Linear> linear =
        Linear::Create({rows, weights.num_places(), weights.out_features}, precision, stream())
            .value();
    return OutputOf<float>(static_cast<size_t>(rows * weights.out_features), [&](float* y) {
      linear->Run(weights, device_x.as<float>(), rows, device_bias.as<float>(), y);
      EXPECT_TRUE(stream().Synchronize().ok());
    });
  }

  // y of random rows, against sums in double over the numbers that the codes stand for. The error
  // is compared with sum |x w|, where a weight counts as code * scale and offset each.
  void ExpectWithin(double bound, const QuantizedMatrix& m, int64_t rows,
                    LinearPrecision precision = LinearPrecision::kSplit, float size_of_x = 1) {
    SCOPED_TRACE(FormatName(m.format) + " rows " + std::to_string(rows) + " out " +
                 std::to_string(m.out_features) + " in " + std::to_string(m.in_features));
    const std::vector<float> x = RandomFloats(static_cast<size_t>(rows * m.in_features), 1,
                                              size_of_x),
                             bias = RandomFloats(static_cast<size_t>(m.out_features), 3),
                             numbers = reference::Dequantize(m);
    const bool with_bias = size_of_x == 1;
    const Uploaded up = UploadMatrix(m);
    const std::vector<float> got = Multiply(up.weights, x, with_bias ? &bias : nullptr, precision);
    double largest = 0;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < m.out_features; ++o) {
        double sum = with_bias ? bias[static_cast<size_t>(o)] : 0, size = std::abs(sum);
        for (int64_t i = 0; i < m.in_features; ++i) {
          const auto at = static_cast<size_t>(o * m.in_features + i);
          const double x_at = x[static_cast<size_t>(r * m.in_features + i)];
          sum += x_at * numbers[at];
          const double minimum =
              m.minima.empty() ? 0
                               : m.minima[static_cast<size_t>(o * m.num_groups() + m.GroupOf(i))];
          size += std::abs(x_at) * (std::abs(numbers[at] - minimum) + std::abs(minimum));
        }
        const double error =
            std::abs(got[static_cast<size_t>(r * m.out_features + o)] - sum) / size;
        largest = error <= largest ? largest : std::isnan(error) ? INFINITY : error;
      }
    }
    EXPECT_LE(largest, bound);
  }

  std::unique_ptr<StagedStream> staged_;
};

TEST_F(CudaQuantizedLinear, EveryFormatLosesLittle) {
  for (const WeightFormat& format : QuantizedFormats()) {
    ExpectWithin(0x1p-21 + kAccumulation, RandomMatrix(format, 40, 200, 5), 3);
    ExpectWithin(0x1p-21 + kAccumulation, RandomMatrix(format, 17, 37, 6), 6);
  }
}

TEST_F(CudaQuantizedLinear, EveryNumberOfRowsLosesLittle) {
  for (const WeightFormat& format :
       {WeightFormat(WeightCode::kInt4, DType::kF16, 32, WeightOffset::kZero),
        WeightFormat(WeightCode::kInt8, DType::kF16, 16, WeightOffset::kMinimum),
        WeightFormat(WeightCode::kF8, DType::kF32, 128)}) {
    const QuantizedMatrix m = RandomMatrix(format, 33, 160, 7);
    for (const int64_t rows : {1, 4, 5, 8, 9, 16, 17, 31, 32, 33, 70})
      ExpectWithin(0x1p-21 + kAccumulation, m, rows);
    for (const int64_t rows : {1, 8, 9, 40})
      ExpectWithin(0x1p-10 + kAccumulation, m, rows, LinearPrecision::kRounded);
  }
}

// Several pieces for each warp, groups that end amid a piece, outputs that are uploaded in parts.
TEST_F(CudaQuantizedLinear, LargerLayersLoseLittle) {
  for (const int64_t group : {0, 24, 48, 104, 1000, 4096}) {
    ExpectWithin(
        0x1p-21 + kAccumulation,
        RandomMatrix({WeightCode::kInt4, DType::kBF16, group, WeightOffset::kMinus8}, 36, 1631, 8),
        2);
  }
  const WeightFormat format(WeightCode::kInt8, DType::kF32, 0);
  ExpectWithin(0x1p-21 + kAccumulation, RandomMatrix(format, 90, 20000, 9), 1);
}

TEST_F(CudaQuantizedLinear, RowsOfAnySizeFitIntoFp16) {
  const QuantizedMatrix m =
      RandomMatrix({WeightCode::kInt4, DType::kF32, 32, WeightOffset::kZero}, 20, 96, 10);
  for (const float size : {1e-30f, 1e-6f, 1e6f, 1e30f})
    ExpectWithin(0x1p-21 + kAccumulation, m, 5, LinearPrecision::kSplit, size);
}

TEST_F(CudaQuantizedLinear, RowsDoNotDependOnTheirBatch) {
  for (const WeightFormat& format :
       {WeightFormat(WeightCode::kInt4, DType::kF16, 64, WeightOffset::kMinimum),
        WeightFormat(WeightCode::kInt8, DType::kF32, 0)}) {
    const Uploaded up = UploadMatrix(RandomMatrix(format, 50, 700, 11));
    const std::vector<float> x = RandomFloats(37 * 700, 12), all = Multiply(up.weights, x, nullptr);
    for (const int64_t row : {0, 3, 20, 36}) {
      const std::vector<float> one(x.begin() + row * 700, x.begin() + (row + 1) * 700);
      EXPECT_TRUE(SameBits(Multiply(up.weights, one, nullptr),
                           {all.begin() + row * 50, all.begin() + (row + 1) * 50}))
          << row;
    }
  }
}

TEST_F(CudaQuantizedLinear, NaNAndInfinityAndZerosStayWithTheirRow) {
  for (const WeightCode code :
       {WeightCode::kInt4, WeightCode::kInt8, WeightCode::kF8, WeightCode::kF4}) {
    const Uploaded up = UploadMatrix(RandomMatrix({code, DType::kF16, 32}, 8, 64, 13));
    std::vector<float> x = RandomFloats(4 * 64, 14);
    x[3] = NAN;
    x[64 + 3] = INFINITY;
    for (size_t i = 128; i < 192; ++i) x[i] = 0;
    const std::vector<float> y = Multiply(up.weights, x, nullptr);
    for (size_t o = 0; o < 8; ++o) {
      EXPECT_TRUE(std::isnan(y[o]));
      EXPECT_FALSE(std::isfinite(y[8 + o]));
      EXPECT_EQ(y[16 + o], 0);
      EXPECT_TRUE(std::isfinite(y[24 + o]));
    }
  }
}

// Whole numbers, and sums that fp32 holds: the same as by hand.
TEST_F(CudaQuantizedLinear, WeightIsCodeTimesScalePlusOffset) {
  QuantizedMatrix m{.format = {WeightCode::kInt4, DType::kF32, 8, WeightOffset::kZero},
                    .out_features = 1,
                    .in_features = 10,
                    .codes = {0, 15, 7, 8, 1, 2, 3, 4, 15, 9},
                    .scales = {0.5f, 2.0f},
                    .zeros = {7, -1}};
  std::vector<float> x(100);
  for (size_t i = 0; i < 10; ++i) x[i * 11] = 1;
  EXPECT_EQ(Multiply(UploadMatrix(m).weights, x, nullptr),
            (std::vector<float>{-3.5f, 4, 0, 0.5f, -3, -2.5f, -2, -1.5f, 32, 20}));
}

TEST_F(CudaQuantizedLinear, LayersThatFillStepsTakeTheBytesOfTheirCodes) {
  const QuantizedLayout layout({WeightCode::kInt4, DType::kF16, 128, WeightOffset::kMinus8}, 4096,
                               4096);
  EXPECT_EQ(layout.num_places, 4096);
  EXPECT_EQ(layout.scales, size_t{4096} * 4096 / 2);
  EXPECT_EQ(layout.offsets - layout.scales, size_t{4096} * 32 * 2);
  EXPECT_EQ(layout.inputs, layout.offsets);
}

}  // namespace cuda_quantized_linear_test
}  // namespace lamina::cuda
#endif
