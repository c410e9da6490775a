// Codes of matrices, against a search over all codes.
#include "quantize/round_to_nearest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace lamina {
namespace {

using ::testing::HasSubstr;

const char* const kSchemes[] = {"w4g32", "w4g64", "w4g128", "w4g32z", "w4g64z", "w4g128z",
                                "w8",    "w8g32", "w8g64",  "w8g128", "fp8"};

std::vector<float> Weights(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.01F, 0.02F);
  std::vector<float> weights(static_cast<size_t>(n));
  for (float& weight : weights) weight = random() % 50 == 0 ? 4 * normal(random) : normal(random);
  return weights;
}

// The number that a code is with this scale and zero point.
double NumberOf(const QuantizedMatrix& m, uint8_t code, double scale, int zero) {
  if (m.format.code == WeightCode::kF8) return static_cast<double>(ToFloat(F8{code})) * scale;
  if (m.format.code == WeightCode::kInt8) return static_cast<int8_t>(code) * scale;
  return (code - zero) * scale;
}

int ZeroOf(const QuantizedMatrix& m, size_t scale) {
  return m.format.offset == WeightOffset::kZero ? m.zeros[scale] : 8;
}

double SquaredError(const QuantizedMatrix& m, const std::vector<float>& weights) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto in = static_cast<size_t>(m.in_features);
    const size_t scale = i / in * static_cast<size_t>(m.num_groups()) +
                         static_cast<size_t>(m.GroupOf(static_cast<int64_t>(i % in)));
    const double number =
        NumberOf(m, m.codes[i], static_cast<double>(m.scales[scale]), ZeroOf(m, scale));
    sum += std::pow(static_cast<double>(weights[i]) - number, 2);
  }
  return sum;
}

TEST(RoundToNearest, NoOtherCodeIsNearer) {
  constexpr int64_t kIn = 256, kOut = 6;
  for (const std::string name : kSchemes) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      const std::vector<float> weights = Weights(kIn * kOut, 1);
      const auto m = RoundToNearest(weights, kIn, *SchemeNamed(name), dtype);
      ASSERT_TRUE(m.ok()) << m.status();
      ASSERT_EQ(m->codes.size(), weights.size());
      ASSERT_EQ(std::ssize(m->scales), kOut * m->num_groups());
      const int num_codes = m->format.code == WeightCode::kInt4 ? 16 : 256;
      for (size_t i = 0; i < weights.size(); ++i) {
        const size_t scale = i / kIn * static_cast<size_t>(m->num_groups()) +
                             static_cast<size_t>(m->GroupOf(static_cast<int64_t>(i % kIn)));
        const auto of_scale = static_cast<double>(m->scales[scale]);
        const auto weight = static_cast<double>(weights[i]);
        const double error =
            std::abs(NumberOf(*m, m->codes[i], of_scale, ZeroOf(*m, scale)) - weight);
        for (int code = 0; code < num_codes; ++code) {
          const double number =
              NumberOf(*m, static_cast<uint8_t>(code), of_scale, ZeroOf(*m, scale));
          // Halfway, the inverse of a scale in fp32 may turn to either side.
          if (!std::isnan(number)) {
            ASSERT_LE(error, std::abs(number - weight) + 1e-6 * std::abs(weight))
                << name << " " << i;
          }
        }
      }
    }
  }
}

// Against scales by the largest magnitude alone.
TEST(RoundToNearest, ScalesAreChosenByTheError) {
  constexpr int64_t kIn = 256, kOut = 32;
  const std::vector<float> weights = Weights(kIn * kOut, 2);
  const auto m = RoundToNearest(weights, kIn, *SchemeNamed("w4g64"), DType::kF32);
  ASSERT_TRUE(m.ok()) << m.status();
  double plain = 0;
  for (size_t begin = 0; begin < weights.size(); begin += 64) {
    double most = 0;
    for (size_t i = begin; i < begin + 64; ++i)
      most = std::max(most, std::abs(static_cast<double>(weights[i])));
    for (size_t i = begin; i < begin + 64; ++i) {
      const double scale = most / 7;
      plain += std::pow(std::round(weights[i] / scale) * scale - weights[i], 2);
    }
  }
  EXPECT_LT(SquaredError(*m, weights), 0.9 * plain);
  const auto finer = RoundToNearest(weights, kIn, *SchemeNamed("w4g32"), DType::kF32);
  EXPECT_LT(SquaredError(*finer, weights), SquaredError(*m, weights));
  const auto with_zeros = RoundToNearest(weights, kIn, *SchemeNamed("w4g64z"), DType::kF32);
  EXPECT_LT(SquaredError(*with_zeros, weights), SquaredError(*m, weights));
}

TEST(RoundToNearest, GroupsWithoutWeightsAreZero) {
  const std::vector<float> weights(128, 0.0F);
  for (const std::string name : kSchemes) {
    const auto m = RoundToNearest(weights, 128, *SchemeNamed(name), DType::kBF16);
    ASSERT_TRUE(m.ok()) << m.status();
    EXPECT_EQ(SquaredError(*m, weights), 0) << name;
  }
}

TEST(RoundToNearest, WeightsThatNoScaleReachesBecomeZero) {
  const std::vector<float> weights(128, 1e-41F);
  for (const std::string name : kSchemes) {
    const auto m = RoundToNearest(weights, 128, *SchemeNamed(name), DType::kF32);
    ASSERT_TRUE(m.ok()) << m.status();
    EXPECT_LT(SquaredError(*m, weights), 1e-75) << name;
  }
}

TEST(RoundToNearest, SaysWhatCannotBe) {
  std::vector<float> weights(96, 1.0F);
  EXPECT_THAT(RoundToNearest(weights, 96, *SchemeNamed("w4g64"), DType::kF32).status().message(),
              HasSubstr("96 inputs, which is no multiple of 64"));
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    weights[77] = wrong;
    EXPECT_THAT(RoundToNearest(weights, 96, *SchemeNamed("w4g32"), DType::kF32).status().message(),
                HasSubstr("not a finite number"));
  }
  for (const std::string name :
       {"", "w", "w4", "w8z", "w8g32z", "w4g", "w4g16", "w4g320", "w5g32", "fp8z", "W4G32"})
    EXPECT_FALSE(SchemeNamed(name)) << name;
}

}  // namespace
}  // namespace lamina
