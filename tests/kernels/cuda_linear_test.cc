#if LAMINA_HAS_CUDA
#include "kernels/cuda/linear.h"

#include <gtest/gtest.h>

#include "cuda_cases.h"
#include "kernel_cases.h"
#include "kernels/reference/reference.h"

namespace lamina::cuda {
namespace cuda_linear_test {

struct Case {
  int64_t rows, in, out;
};

class CudaLinear : public CudaTest {
 protected:
  // y over x of that size, with or without a bias, against sums in double. `bound`: of the error,
  // as a part of sum |x w| (+ |bias|).
  void ExpectWithin(double bound, const Case& c, DType dtype, LinearPrecision precision,
                    float size_of_x = 1, bool with_bias = true) {
    SCOPED_TRACE(std::string(DTypeName(dtype)) + " rows " + std::to_string(c.rows) + " in " +
                 std::to_string(c.in) + " out " + std::to_string(c.out));
    const auto rows = static_cast<size_t>(c.rows), in = static_cast<size_t>(c.in),
               out = static_cast<size_t>(c.out);
    const std::vector<float> x = RandomFloats(rows * in, 1, size_of_x), bias = RandomFloats(out, 3);
    const std::vector<std::byte> w = Encode(RandomFloats(out * in, 2), dtype);
    const DeviceBuffer device_x = Upload(x), device_w = Upload(w), device_bias = Upload(bias);
    const std::unique_ptr<Linear> linear =
        Linear::Create({c.rows + 3, c.in + 8, c.out + 5}, precision, stream()).value();
    const std::vector<float> got = OutputOf<float>(rows * out, [&](float* y) {
      linear->Run({device_w.data(), dtype, c.out, c.in}, device_x.as<float>(), c.rows,
                  with_bias ? device_bias.as<float>() : nullptr, y);
      EXPECT_TRUE(stream().Synchronize().ok());
    });
    double largest = 0;
    for (size_t r = 0; r < rows; ++r) {
      for (size_t o = 0; o < out; ++o) {
        double sum = with_bias ? bias[o] : 0, size = std::abs(sum);
        for (size_t i = 0; i < in; ++i) {
          const double product = double{x[r * in + i]} *
                                 reference::At(w.data(), dtype, static_cast<int64_t>(o * in + i));
          sum += product;
          size += std::abs(product);
        }
        const double error = std::abs(got[r * out + o] - sum) / size;
        largest = error <= largest ? largest : std::isnan(error) ? INFINITY : error;
      }
    }
    EXPECT_LE(largest, bound);
  }
};

constexpr Case kCases[] = {{1, 8, 8},    {1, 64, 130}, {3, 300, 17},
                           {64, 40, 24}, {65, 40, 24}, {130, 24, 16}};

constexpr double kAccumulation = 0x1p-20;  // of fp32 sums of these lengths

TEST_F(CudaLinear, SplitRowsLoseLittle) {
  for (const Case& c : kCases) {
    ExpectWithin(0x1p-16 + kAccumulation, c, DType::kBF16, LinearPrecision::kSplit);
    ExpectWithin(0x1p-22 + kAccumulation, c, DType::kF16, LinearPrecision::kSplit);
    ExpectWithin(0x1p-16 + kAccumulation, c, DType::kBF16, LinearPrecision::kSplit, 1, false);
    ExpectWithin(0x1p-22 + kAccumulation, c, DType::kF16, LinearPrecision::kSplit, 1, false);
  }
}

TEST_F(CudaLinear, RoundedRowsLoseWhatRoundingDoes) {
  for (const Case& c : kCases) {
    ExpectWithin(0x1p-8 + kAccumulation, c, DType::kBF16, LinearPrecision::kRounded);
    ExpectWithin(0x1p-11 + kAccumulation, c, DType::kF16, LinearPrecision::kRounded);
    ExpectWithin(0x1p-8 + kAccumulation, c, DType::kBF16, LinearPrecision::kRounded, 1, false);
  }
}

TEST_F(CudaLinear, WholeFloatsAreTakenAsTheyAre) {
  for (const Case& c : kCases) {
    ExpectWithin(kAccumulation, c, DType::kF32, LinearPrecision::kSplit);
    ExpectWithin(kAccumulation, c, DType::kF32, LinearPrecision::kRounded, 1, false);
  }
}

// Far beyond what fp16 can hold, and far below.
TEST_F(CudaLinear, RowsOfAnySizeFitIntoFp16) {
  for (const float size : {1e-30f, 1e-6f, 1e6f, 1e30f}) {
    for (const int64_t rows : {3, 70})
      ExpectWithin(0x1p-22 + kAccumulation, {rows, 40, 9}, DType::kF16, LinearPrecision::kSplit,
                   size, false);
  }
}

TEST_F(CudaLinear, NaNAndInfinityAndZerosStayWithTheirRow) {
  const std::vector<float> w = RandomFloats(8 * 16, 2);
  for (const DType dtype : kAllDTypes) {
    const DeviceBuffer device_w = Upload(Encode(w, dtype));
    std::vector<float> x = RandomFloats(4 * 16, 1);
    x[3] = NAN;
    x[16 + 3] = INFINITY;
    for (size_t i = 32; i < 48; ++i) x[i] = 0;
    const DeviceBuffer device_x = Upload(x);
    const std::unique_ptr<Linear> linear =
        Linear::Create({4, 16, 8}, LinearPrecision::kSplit, stream()).value();
    const std::vector<float> y = OutputOf<float>(4 * 8, [&](float* out) {
      linear->Run({device_w.data(), dtype, 8, 16}, device_x.as<float>(), 4, nullptr, out);
      stream().Synchronize().ok();
    });
    for (size_t o = 0; o < 8; ++o) {
      EXPECT_TRUE(std::isnan(y[o]));
      EXPECT_FALSE(std::isfinite(y[8 + o]));
      EXPECT_EQ(y[16 + o], 0);
      EXPECT_TRUE(std::isfinite(y[24 + o]));
    }
  }
}

TEST_F(CudaLinear, NoRowsAreNothingDone) {
  const std::unique_ptr<Linear> linear =
      Linear::Create({4, 16, 8}, LinearPrecision::kSplit, stream()).value();
  linear->Run({nullptr, DType::kBF16, 8, 16}, nullptr, 0, nullptr, nullptr);
  EXPECT_TRUE(stream().Synchronize().ok());
}

TEST_F(CudaLinear, WeightsInFp8AreAFailure) {
  const std::unique_ptr<Stream> other = Stream::Create().value();
  Linear::Create({4, 16, 8}, LinearPrecision::kSplit, *other)
      .value()
      ->Run({nullptr, DType::kF8, 8, 16}, nullptr, 1, nullptr, nullptr);
  EXPECT_EQ(other->Synchronize().message(), "a linear layer with weights in fp8");
}

}  // namespace cuda_linear_test
}  // namespace lamina::cuda
#endif
