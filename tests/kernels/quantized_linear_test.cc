// Quantized linear layers against the reference on the numbers that their codes stand for.
#include <gtest/gtest.h>

#include "kernel_cases.h"
#include "kernels/linear.h"
#include "kernels/reference/reference.h"
#include "quantized_cases.h"

namespace lamina {
namespace quantized_linear_test {

struct Case {
  WeightFormat format;
  int64_t rows, out, in;
};

std::string Name(const Case& c) {
  return FormatName(c.format) + " rows " + std::to_string(c.rows) + " out " +
         std::to_string(c.out) + " in " + std::to_string(c.in);
}

void ExpectReferenceBits(const Case& c) {
  SCOPED_TRACE(Name(c));
  const auto seed = static_cast<unsigned>(c.rows * 7919 + c.out * 31 + c.in);
  const QuantizedMatrix matrix = RandomMatrix(c.format, c.out, c.in, seed);
  const std::vector<float> numbers = reference::Dequantize(matrix),
                           x = RandomFloats(static_cast<size_t>(c.rows * c.in), seed + 3),
                           bias = RandomFloats(static_cast<size_t>(c.out), seed + 4);
  std::vector<float> expected(static_cast<size_t>(c.rows * c.out)), without_bias = expected;
  reference::Linear(numbers.data(), DType::kF32, {c.rows, c.out, c.in}, x.data(), bias.data(),
                    expected.data());
  reference::Linear(numbers.data(), DType::kF32, {c.rows, c.out, c.in}, x.data(), nullptr,
                    without_bias.data());
  WorkerTeam team(2);
  const PackedWeights weights(matrix, team);
  // Panels that lie in somebody else's memory, in one piece.
  PackedWeights elsewhere(c.format, c.out, c.in);
  ASSERT_EQ(elsewhere.size_bytes(), weights.size_bytes());
  const auto* const bytes = static_cast<const std::byte*>(weights.data());
  const std::vector<std::byte> copy(bytes, bytes + weights.size_bytes());
  elsewhere.PointTo(copy.data());
  for (const CpuIsa isa : SupportedIsas()) {
    SCOPED_TRACE(CpuIsaName(isa));
    const WithIsa with(isa);
    ASSERT_TRUE(SameBits(RunLinear(weights, x, bias.data(), team), expected));
    ASSERT_TRUE(SameBits(RunLinear(elsewhere, x, nullptr, team), without_bias));
  }
}

TEST(QuantizedLinear, EqualsTheReferenceBitForBitOnEveryIsa) {
  for (const WeightFormat& format : QuantizedFormats()) {
    for (const Case& c : {Case{format, 1, 1, 1},
                          {format, 1, 17, 7},
                          {format, 2, 70, 129},
                          {format, 3, 64, 256},
                          {format, 5, 33, 100},
                          {format, 12, 90, 95},
                          {format, 13, 90, 131},
                          {format, 31, 40, 67}})
      ExpectReferenceBits(c);
  }
}

TEST(QuantizedLinear, EqualsTheReferenceForEveryNumberOfRows) {
  for (const WeightFormat& format :
       {WeightFormat(WeightCode::kInt4, DType::kF16, 32, WeightOffset::kZero),
        WeightFormat(WeightCode::kInt8, DType::kF32, 0),
        WeightFormat(WeightCode::kF8, DType::kF32, 128),
        WeightFormat(WeightCode::kF4, DType::kBF16, 32)}) {
    for (int64_t rows = 1; rows <= 26; ++rows) ExpectReferenceBits({format, rows, 70, 45});
  }
}

// Sums that are continued over several blocks of inputs, amid a group too, and rows over several
// blocks of rows.
TEST(QuantizedLinear, EqualsTheReferenceWhereBlocksMeet) {
  for (const WeightFormat& format : QuantizedFormats()) ExpectReferenceBits({format, 14, 18, 1603});
  for (const int64_t group : {0, 24, 1000, 4096}) {
    const WeightFormat format(WeightCode::kInt4, DType::kBF16, group, WeightOffset::kMinus8);
    for (const int64_t rows : {47, 49, 97, 200}) ExpectReferenceBits({format, rows, 36, 1031});
    ExpectReferenceBits({format, 12, 17, 8300});
    ExpectReferenceBits({format, 2, 16, 49300});
  }
}

TEST(QuantizedLinear, RowsDoNotDependOnTheirBatchOrTheTeam) {
  const QuantizedMatrix matrix =
      RandomMatrix({WeightCode::kInt4, DType::kF16, 64, WeightOffset::kZero}, 300, 520, 1);
  WorkerTeam one(1);
  const PackedWeights weights(matrix, one);
  const std::vector<float> x = RandomFloats(131 * 520, 2);
  for (const CpuIsa isa : SupportedIsas()) {
    const WithIsa with(isa);
    const std::vector<float> all = RunLinear(weights, x, nullptr, one);
    for (const int64_t row : {0, 1, 20, 130}) {
      const std::vector<float> one_row(x.begin() + row * 520, x.begin() + (row + 1) * 520);
      EXPECT_TRUE(SameBits(RunLinear(weights, one_row, nullptr, one),
                           {all.begin() + row * 300, all.begin() + (row + 1) * 300}));
    }
    for (int workers = 2; workers <= 4; ++workers) {
      WorkerTeam team(workers);
      EXPECT_TRUE(SameBits(RunLinear(weights, x, nullptr, team), all)) << workers << " workers";
    }
  }
}

// By hand: 3 codes of one group, 2 of the next, of one output.
TEST(QuantizedLinear, WeightIsCodeTimesScalePlusOffset) {
  QuantizedMatrix m{.format = {WeightCode::kInt4, DType::kF32, 8, WeightOffset::kZero},
                    .out_features = 1,
                    .in_features = 10,
                    .codes = {0, 15, 7, 8, 1, 2, 3, 4, 15, 9},
                    .scales = {0.5f, 2.0f},
                    .zeros = {7, -1}};
  const std::vector<float> expected = {-3.5f, 4, 0, 0.5f, -3, -2.5f, -2, -1.5f, 32, 20};
  EXPECT_EQ(reference::Dequantize(m), expected);
  WorkerTeam team(1);
  const PackedWeights weights(m, team);
  std::vector<float> x(100);
  for (size_t i = 0; i < 10; ++i) x[i * 11] = 1;
  EXPECT_EQ(RunLinear(weights, x, nullptr, team), expected);
}

}  // namespace quantized_linear_test
}  // namespace lamina
