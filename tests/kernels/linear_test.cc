#include "kernels/linear.h"

#include <gtest/gtest.h>

#include "kernel_cases.h"
#include "kernels/reference/reference.h"

namespace lamina {
namespace linear_test {

struct Case {
  int64_t rows, out, in;
};

struct Inputs {
  std::vector<std::byte> weights;
  std::vector<float> x, bias;
};

Inputs MakeInputs(const Case& c, DType dtype) {
  const auto seed = static_cast<uint32_t>(c.rows * 7919 + c.out * 31 + c.in);
  return {Encode(RandomFloats(static_cast<size_t>(c.out * c.in), seed), dtype),
          RandomFloats(static_cast<size_t>(c.rows * c.in), seed + 1),
          RandomFloats(static_cast<size_t>(c.out), seed + 2)};
}

std::vector<float> Expected(const Case& c, DType dtype, const Inputs& in, bool with_bias) {
  std::vector<float> y(static_cast<size_t>(c.rows * c.out));
  reference::Linear(in.weights.data(), dtype, {c.rows, c.out, c.in}, in.x.data(),
                    with_bias ? in.bias.data() : nullptr, y.data());
  return y;
}

void ExpectReferenceBits(const Case& c, DType dtype) {
  const Inputs in = MakeInputs(c, dtype);
  const std::vector<float> with_bias = Expected(c, dtype, in, true),
                           without_bias = Expected(c, dtype, in, false);
  WorkerTeam team(2);
  const PackedWeights weights(in.weights.data(), dtype, c.out, c.in, team);
  for (CpuIsa isa : SupportedIsas()) {
    SCOPED_TRACE(std::string(CpuIsaName(isa)) + " " + std::string(DTypeName(dtype)) + " rows " +
                 std::to_string(c.rows) + " out " + std::to_string(c.out) + " in " +
                 std::to_string(c.in));
    const WithIsa with(isa);
    EXPECT_TRUE(SameBits(RunLinear(weights, in.x, in.bias.data(), team), with_bias));
    EXPECT_TRUE(SameBits(RunLinear(weights, in.x, nullptr, team), without_bias));
  }
}

TEST(Linear, EqualsTheReferenceBitForBitOnEveryIsa) {
  constexpr Case kCases[] = {{1, 1, 1},     {1, 15, 7},    {1, 16, 8},    {2, 17, 33},
                             {3, 64, 64},   {4, 100, 129}, {5, 33, 65},   {6, 128, 100},
                             {11, 50, 257}, {12, 96, 511}, {13, 40, 513}, {31, 130, 96}};
  for (const Case& c : kCases) {
    for (DType dtype : kAllDTypes) ExpectReferenceBits(c, dtype);
  }
}

// Every number of rows up to beyond the largest tile.
TEST(Linear, EqualsTheReferenceForEveryNumberOfRows) {
  for (int64_t rows = 1; rows <= 26; ++rows) ExpectReferenceBits({rows, 70, 37}, DType::kBF16);
}

// Sums that are continued over several blocks of inputs, and rows over several blocks of rows.
TEST(Linear, EqualsTheReferenceWhereBlocksMeet) {
  for (DType dtype : kAllDTypes) ExpectReferenceBits({14, 18, 1600}, dtype);
  for (int64_t rows : {47, 48, 49, 97, 200, 512})
    ExpectReferenceBits({rows, 20, 1031}, DType::kBF16);
  ExpectReferenceBits({49, 35, 4100}, DType::kBF16);
  ExpectReferenceBits({12, 17, 8300}, DType::kBF16);
  ExpectReferenceBits({2, 16, 49300}, DType::kF16);
}

TEST(Linear, RowsDoNotDependOnTheirBatchOrTheTeam) {
  for (DType dtype : kAllDTypes) {
    const Case c = {dtype == DType::kBF16 ? 131 : 37, 300, 520};
    const Inputs in = MakeInputs(c, dtype);
    WorkerTeam one(1);
    const PackedWeights weights(in.weights.data(), dtype, c.out, c.in, one);
    for (CpuIsa isa : SupportedIsas()) {
      const WithIsa with(isa);
      const std::vector<float> all = RunLinear(weights, in.x, in.bias.data(), one);
      for (int64_t row : {int64_t{0}, int64_t{1}, int64_t{20}, c.rows - 1}) {
        const std::vector<float> x(in.x.begin() + row * c.in, in.x.begin() + (row + 1) * c.in);
        const std::vector<float> expected(all.begin() + row * c.out,
                                          all.begin() + (row + 1) * c.out);
        EXPECT_TRUE(SameBits(RunLinear(weights, x, in.bias.data(), one), expected))
            << "row " << row;
      }
      for (int workers = 2; workers <= 4; ++workers) {
        WorkerTeam team(workers);
        EXPECT_TRUE(SameBits(RunLinear(weights, in.x, in.bias.data(), team), all))
            << workers << " workers";
      }
    }
  }
}

TEST(Linear, TakesWeightsAtAnyAddress) {
  const Case c = {1, 20, 30};
  const Inputs in = MakeInputs(c, DType::kBF16);
  std::vector<std::byte> shifted(in.weights.size() + 1);
  std::copy(in.weights.begin(), in.weights.end(), shifted.begin() + 1);
  WorkerTeam team(1);
  const PackedWeights weights(shifted.data() + 1, DType::kBF16, c.out, c.in, team);
  EXPECT_TRUE(
      SameBits(RunLinear(weights, in.x, nullptr, team), Expected(c, DType::kBF16, in, false)));
}

TEST(Linear, MovedWeightsKeepTheirValues) {
  const Case c = {2, 40, 24};
  const Inputs in = MakeInputs(c, DType::kF16);
  WorkerTeam team(1);
  PackedWeights first(in.weights.data(), DType::kF16, c.out, c.in, team);
  PackedWeights second(std::move(first));
  const Inputs other = MakeInputs({1, 8, 8}, DType::kF32);
  PackedWeights third(other.weights.data(), DType::kF32, 8, 8, team);
  third = std::move(second);
  EXPECT_EQ(third.out_features(), c.out);
  EXPECT_EQ(third.format(), DType::kF16);
  EXPECT_TRUE(SameBits(RunLinear(third, in.x, nullptr, team), Expected(c, DType::kF16, in, false)));
}

TEST(Linear, NaNStaysInItsRowAndOutput) {
  const Case c = {3, 20, 16};
  Inputs in = MakeInputs(c, DType::kF32);
  in.x[static_cast<size_t>(c.in) + 5] = NAN;
  WorkerTeam team(1);
  const PackedWeights weights(in.weights.data(), DType::kF32, c.out, c.in, team);
  const std::vector<float> y = RunLinear(weights, in.x, nullptr, team);
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t o = 0; o < c.out; ++o)
      EXPECT_EQ(std::isnan(y[static_cast<size_t>(r * c.out + o)]), r == 1);
  }
}

}  // namespace linear_test
}  // namespace lamina
