#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <numbers>
#include <numeric>

#include "kernel_cases.h"
#include "kernels/reference/reference.h"

namespace lamina {
namespace {

// Lengths around the vector of 16 and the unrolled 64.
constexpr int64_t kLengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 288, 1000};

// Runs `f` on every instruction set; its results must be close to `expected` and equal to each
// other.
template <class F>
void ExpectOnEveryIsa(const std::vector<float>& expected, double tolerance, const F& f) {
  std::vector<float> first;
  for (CpuIsa isa : SupportedIsas()) {
    SCOPED_TRACE(CpuIsaName(isa));
    const WithIsa with(isa);
    const std::vector<float> got = f();
    EXPECT_LE(LargestError(got, expected), tolerance);
    if (first.empty()) first = got;
    EXPECT_TRUE(SameBits(got, first)) << "differs from the scalar kernels";
  }
}

TEST(RmsNorm, MatchesTheReference) {
  for (int64_t dim : kLengths) {
    for (float scale : {1e-3f, 1.0f, 100.0f}) {
      const auto n = static_cast<size_t>(dim);
      const std::vector<float> x = RandomFloats(n * 3, 1, scale), weight = RandomFloats(n, 2);
      std::vector<float> expected(n * 3);
      reference::RmsNorm(x.data(), weight.data(), 1e-5f, 3, dim, expected.data());
      ExpectOnEveryIsa(expected, 1e-6, [&] {
        std::vector<float> y(n * 3);
        RmsNorm(x.data(), weight.data(), 1e-5f, 3, dim, y.data());
        return y;
      });
      ExpectOnEveryIsa(expected, 1e-6, [&] {
        std::vector<float> y = x;
        RmsNorm(y.data(), weight.data(), 1e-5f, 3, dim, y.data());
        return y;
      });
    }
  }
}

TEST(RmsNorm, ZerosStayZeros) {
  const std::vector<float> x(20, 0.0f), weight(20, 2.0f);
  ExpectOnEveryIsa(x, 0, [&] {
    std::vector<float> y(20, NAN);
    RmsNorm(x.data(), weight.data(), 1e-6f, 1, 20, y.data());
    return y;
  });
}

TEST(Rope, MatchesTheReference) {
  constexpr RopeShape kShapes[] = {{1, 8, 8},         {3, 48, 48},       {2, 64, 64},
                                   {2, 128, 128},     {4, 80, 32},       {2, 96, 24},
                                   {3, 48, 48, true}, {2, 80, 32, true}, {2, 96, 72, false, 1.19f}};
  const std::vector<int32_t> positions = {0, 1, 17, 4095, 100000};
  for (const RopeShape& shape : kShapes) {
    std::vector<float> inv_freq;
    for (int j = 0; j < shape.rotary_dim / 2; ++j) {
      inv_freq.push_back(
          std::pow(10000.0f, -2.0f * static_cast<float>(j) / static_cast<float>(shape.rotary_dim)));
    }
    const std::vector<float> x =
        RandomFloats(positions.size() * static_cast<size_t>(shape.num_heads * shape.head_dim), 3);
    std::vector<float> expected(x.size());
    reference::Rope(x.data(), positions, inv_freq, shape, expected.data());
    ExpectOnEveryIsa(expected, 1e-6, [&] {
      std::vector<float> y(x.size());
      Rope(x.data(), positions, inv_freq, shape, y.data());
      return y;
    });
    ExpectOnEveryIsa(expected, 1e-6, [&] {
      std::vector<float> y = x;
      Rope(y.data(), positions, inv_freq, shape, y.data());
      return y;
    });
  }
}

TEST(Rope, AQuarterTurnSwapsTheHalves) {
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> inv_freq(4, std::numbers::pi_v<float> / 2);
  std::vector<float> y(8);
  Rope(x.data(), std::vector<int32_t>{1}, inv_freq, {1, 8, 8}, y.data());
  const std::vector<float> expected = {-5, -6, -7, -8, 1, 2, 3, 4};
  EXPECT_LT(LargestError(y, expected), 1e-6);
}

TEST(Gelu, MatchesTheErrorFunction) {
  std::vector<float> x;
  for (float at = -12; at < 12; at += 0.0037f) x.push_back(at);
  for (const float at : {0.0f, -0.0f, 1e-20f, -40.0f, 40.0f, 1e30f, -1e30f}) x.push_back(at);
  std::vector<float> expected(x.size());
  reference::Gelu(x.data(), std::ssize(x), expected.data());
  std::vector<float> first;
  for (const CpuIsa isa : SupportedIsas()) {
    const WithIsa with(isa);
    std::vector<float> y = x;
    Gelu(y.data(), std::ssize(y), y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(y[i], expected[i], 1e-6 + 2e-7 * std::abs(expected[i])) << "of " << x[i];
    }
    if (first.empty()) first = y;
    EXPECT_TRUE(SameBits(y, first)) << "differs from the scalar kernels";
    const float odd[] = {NAN, INFINITY, -INFINITY};
    float of_odd[3];
    Gelu(odd, 3, of_odd);
    EXPECT_TRUE(std::isnan(of_odd[0]));
    EXPECT_EQ(of_odd[1], INFINITY);
    EXPECT_NEAR(of_odd[2], 0, 1e-30);
  }
}

// Without a second factor, and without weights: as with ones and zeros.
TEST(Elementwise, WhatIsLeftOutIsOnesAndZeros) {
  const std::vector<float> x = RandomFloats(100, 8, 3), ones(100, 1.0f), zeros(100, 0.0f);
  const auto expect_same = [&](auto&& without, auto&& with) {
    for (const CpuIsa isa : SupportedIsas()) {
      const WithIsa with_isa(isa);
      std::vector<float> a(100), b(100);
      without(a.data());
      with(b.data());
      EXPECT_TRUE(SameBits(a, b));
      EXPECT_FALSE(SameBits(a, x));
    }
  };
  expect_same([&](float* y) { Silu(x.data(), 100, y); },
              [&](float* y) { SiluMul(x.data(), ones.data(), 100, y); });
  expect_same([&](float* y) { GeluTanh(x.data(), 100, y); },
              [&](float* y) { GeluMul(x.data(), ones.data(), 100, y); });
  expect_same([&](float* y) { RmsNorm(x.data(), nullptr, 1e-5f, 2, 50, y); },
              [&](float* y) { RmsNorm(x.data(), ones.data(), 1e-5f, 2, 50, y); });
  expect_same([&](float* y) { LayerNorm(x.data(), {}, 1e-5f, 2, 50, y); },
              [&](float* y) {
                LayerNorm(x.data(), {ones.data(), zeros.data()}, 1e-5f, 2, 50, y);
              });
  expect_same([&](float* y) { Mul(x.data(), x.data(), 100, y); },
              [&](float* y) {
                for (size_t i = 0; i < 100; ++i) y[i] = x[i] * x[i];
              });
}

TEST(SiluMul, MatchesTheReference) {
  for (int64_t n : kLengths) {
    const std::vector<float> gate = RandomFloats(static_cast<size_t>(n), 4, 30),
                             up = RandomFloats(static_cast<size_t>(n), 5);
    std::vector<float> expected(gate.size());
    reference::SiluMul(gate.data(), up.data(), n, expected.data());
    ExpectOnEveryIsa(expected, 1e-6, [&] {
      std::vector<float> y = gate;
      SiluMul(y.data(), up.data(), n, y.data());
      return y;
    });
  }
}

TEST(SwigluOai, MatchesTheReference) {
  for (const int64_t n : kLengths) {
    const std::vector<float> gate = RandomFloats(static_cast<size_t>(n), 4, 12),
                             up = RandomFloats(static_cast<size_t>(n), 5, 12);
    std::vector<float> expected(gate.size());
    reference::SwigluOai(gate.data(), up.data(), 7, n, expected.data());
    ExpectOnEveryIsa(expected, 1e-6, [&] {
      std::vector<float> y = gate;
      SwigluOai(y.data(), up.data(), 7, n, y.data());
      return y;
    });
  }
}

TEST(SwigluOai, LimitsAndKeepsNaN) {
  const std::vector<float> gate = {1e30f, -200, NAN, 0, 8, 3},
                           up = {-1e30f, 1e30f, 0, NAN, 1e30f, -8};
  for (const CpuIsa isa : SupportedIsas()) {
    const WithIsa with(isa);
    std::vector<float> y(6);
    SwigluOai(gate.data(), up.data(), 7, 6, y.data());
    EXPECT_NEAR(y[0], 7 * -6, 1e-3);
    EXPECT_NEAR(y[1], 0, 1e-30);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_TRUE(std::isnan(y[3]));
    EXPECT_NEAR(y[4], 7 * 8, 1e-2);
    EXPECT_NEAR(y[5], 3 / (1 + std::exp(-1.702 * 3)) * -6, 1e-4);
  }
}

TEST(SiluMul, SaturatesAndKeepsNaN) {
  const std::vector<float> gate = {-1e30f, -200.0f, -88.0f, 0.0f, 88.0f, 1e30f, NAN}, up(7, 1.0f);
  for (CpuIsa isa : SupportedIsas()) {
    const WithIsa with(isa);
    std::vector<float> y(7);
    SiluMul(gate.data(), up.data(), 7, y.data());
    EXPECT_NEAR(y[1], 0, 1e-30);
    EXPECT_NEAR(y[2], 0, 1e-30);
    EXPECT_EQ(y[3], 0);
    EXPECT_EQ(y[4], 88);
    EXPECT_EQ(y[5], 1e30f);
    EXPECT_TRUE(std::isnan(y[6]));
    EXPECT_TRUE(std::isfinite(y[0]));
  }
}

// Relative accuracy of the exponential inside SiluMul: silu(x) = x / (1 + e^-x).
TEST(SiluMul, IsAccurateOverTheWholeRange) {
  std::vector<float> gate;
  for (float x = -80; x < 80; x += 0.0037f) gate.push_back(x);
  const std::vector<float> up(gate.size(), 1.0f);
  for (CpuIsa isa : SupportedIsas()) {
    const WithIsa with(isa);
    std::vector<float> y(gate.size());
    SiluMul(gate.data(), up.data(), static_cast<int64_t>(gate.size()), y.data());
    double largest = 0;
    for (size_t i = 0; i < gate.size(); ++i) {
      const double exact = gate[i] / (1 + std::exp(-double{gate[i]}));
      largest = std::max(largest, std::abs(y[i] - exact) / std::max(std::abs(exact), 1e-37));
    }
    EXPECT_LT(largest, 4e-7);
  }
}

TEST(LayerNorm, MatchesTheReference) {
  for (int64_t dim : kLengths) {
    for (float scale : {1e-2f, 1.0f, 100.0f}) {
      const auto n = static_cast<size_t>(dim);
      std::vector<float> x = RandomFloats(n * 3, 1, scale);
      for (float& element : x) element += 2 * scale;  // a mean that matters
      const std::vector<float> weight = RandomFloats(n, 2), bias = RandomFloats(n, 3);
      const LayerNormWeights weights{weight.data(), bias.data()};
      std::vector<float> expected(n * 3);
      reference::LayerNorm(x.data(), weights, 1e-5f, 3, dim, expected.data());
      ExpectOnEveryIsa(expected, 1e-5, [&] {
        std::vector<float> y(n * 3);
        LayerNorm(x.data(), weights, 1e-5f, 3, dim, y.data());
        return y;
      });
      ExpectOnEveryIsa(expected, 1e-5, [&] {
        std::vector<float> y = x;
        LayerNorm(y.data(), weights, 1e-5f, 3, dim, y.data());
        return y;
      });
    }
  }
}

TEST(LayerNorm, RowsTakeTurnsWithSetsOfWeights) {
  const std::vector<float> x = RandomFloats(6 * 40, 1, 3), weight = RandomFloats(3 * 40, 2),
                           bias = RandomFloats(3 * 40, 3);
  std::vector<float> expected(x.size()), one_by_one(x.size());
  reference::LayerNorm(x.data(), {weight.data(), bias.data(), 3}, 1e-5f, 6, 40, expected.data());
  for (size_t r = 0; r < 6; ++r) {
    reference::LayerNorm(x.data() + r * 40, {weight.data() + r % 3 * 40, bias.data() + r % 3 * 40},
                         1e-5f, 1, 40, one_by_one.data() + r * 40);
  }
  EXPECT_TRUE(SameBits(expected, one_by_one));
  ExpectOnEveryIsa(expected, 1e-5, [&] {
    std::vector<float> y(x.size());
    LayerNorm(x.data(), {weight.data(), bias.data(), 3}, 1e-5f, 6, 40, y.data());
    return y;
  });
}

TEST(GeluMul, MatchesTheReference) {
  for (int64_t n : kLengths) {
    const std::vector<float> gate = RandomFloats(static_cast<size_t>(n), 4, 8),
                             up = RandomFloats(static_cast<size_t>(n), 5);
    std::vector<float> expected(gate.size());
    reference::GeluMul(gate.data(), up.data(), n, expected.data());
    ExpectOnEveryIsa(expected, 1e-6, [&] {
      std::vector<float> y = gate;
      GeluMul(y.data(), up.data(), n, y.data());
      return y;
    });
  }
}

TEST(GeluMul, SaturatesAndKeepsNaN) {
  const std::vector<float> gate = {-1e30f, -20.0f, 0.0f, 20.0f, 1e30f, NAN}, up(6, 1.0f);
  for (CpuIsa isa : SupportedIsas()) {
    const WithIsa with(isa);
    std::vector<float> y(6);
    GeluMul(gate.data(), up.data(), 6, y.data());
    EXPECT_NEAR(y[0], 0, 1e-7);
    EXPECT_NEAR(y[1], 0, 1e-30);
    EXPECT_EQ(y[2], 0);
    EXPECT_EQ(y[3], 20);
    EXPECT_EQ(y[4], 1e30f);
    EXPECT_TRUE(std::isnan(y[5]));
  }
}

TEST(SoftCap, MatchesTheReference) {
  for (int64_t n : kLengths) {
    for (float cap : {0.5f, 30.0f, 50.0f}) {
      const std::vector<float> x = RandomFloats(static_cast<size_t>(n), 6, 4 * cap);
      std::vector<float> expected(x.size());
      reference::SoftCap(x.data(), cap, n, expected.data());
      ExpectOnEveryIsa(expected, 3e-7 * (1 + double{cap}), [&] {
        std::vector<float> y = x;
        SoftCap(y.data(), cap, n, y.data());
        return y;
      });
    }
  }
}

TEST(SoftCap, SaturatesAndKeepsNaN) {
  const std::vector<float> x = {-1e30f, 0.0f, 1e30f, NAN};
  for (CpuIsa isa : SupportedIsas()) {
    const WithIsa with(isa);
    std::vector<float> y(4);
    SoftCap(x.data(), 30, 4, y.data());
    EXPECT_EQ(y[0], -30);
    EXPECT_EQ(y[1], 0);
    EXPECT_EQ(y[2], 30);
    EXPECT_TRUE(std::isnan(y[3]));
  }
}

TEST(ReluAndScale, MatchTheReference) {
  for (int64_t n : kLengths) {
    std::vector<float> x = RandomFloats(static_cast<size_t>(n), 7, 3);
    std::vector<float> expected(x.size()), y(x.size());
    reference::Relu(x.data(), n, expected.data());
    Relu(x.data(), n, y.data());
    EXPECT_TRUE(SameBits(y, expected));
    reference::Scale(x.data(), 1.7f, n, expected.data());
    Scale(x.data(), 1.7f, n, x.data());
    EXPECT_TRUE(SameBits(x, expected));
  }
  float nan = NAN;
  Relu(&nan, 1, &nan);
  EXPECT_TRUE(std::isnan(nan));
}

TEST(SigmoidGate, MatchesTheReference) {
  for (int64_t dim : kLengths) {
    const std::vector<float> gate = {-30, -0.7f, 0, 3},
                             x = RandomFloats(static_cast<size_t>(4 * dim), 9, 2);
    std::vector<float> expected(x.size()), y = x;
    reference::SigmoidGate(gate.data(), x.data(), 4, dim, expected.data());
    SigmoidGate(gate.data(), y.data(), 4, dim, y.data());
    EXPECT_LE(LargestError(y, expected), 1e-6);
  }
}

TEST(GrowByPosition, MatchesTheReference) {
  // Before and behind the ends of periods, and as late as a position can be.
  const std::vector<int32_t> positions = {0, 6, 7, 8, 8191, 2147483647};
  for (int64_t dim : kLengths) {
    std::vector<float> y = RandomFloats(positions.size() * static_cast<size_t>(dim), 9, 2);
    std::vector<float> expected(y.size());
    const PositionGrowth growth{.scale = 0.3f, .period = 8};
    reference::GrowByPosition(y.data(), positions, growth, dim, expected.data());
    const std::vector<float> first(y.begin(), y.begin() + 2 * dim);
    GrowByPosition(y.data(), positions, growth, dim, y.data());
    EXPECT_LE(LargestError(y, expected), 1e-5);
    EXPECT_TRUE(std::ranges::equal(first, std::span(y).first(first.size())))
        << "the first period is left as it is";
  }
}

TEST(Add, Adds) {
  for (int64_t n : kLengths) {
    const std::vector<float> a = RandomFloats(static_cast<size_t>(n), 6),
                             b = RandomFloats(static_cast<size_t>(n), 7);
    std::vector<float> expected(a.size()), y = a;
    reference::Add(a.data(), b.data(), n, expected.data());
    Add(y.data(), b.data(), n, y.data());
    EXPECT_TRUE(SameBits(y, expected));
  }
}

TEST(Embedding, PicksRowsOfTheTable) {
  constexpr int64_t kVocab = 11;
  const std::vector<TokenId> tokens = {10, 0, 3, 3};
  for (DType dtype : kAllDTypes) {
    for (int64_t dim : {1, 16, 37}) {
      const std::vector<std::byte> table =
          Encode(RandomFloats(static_cast<size_t>(kVocab * dim), 8), dtype);
      std::vector<float> expected(tokens.size() * static_cast<size_t>(dim));
      reference::Embedding(table.data(), dtype, dim, tokens, expected.data());
      ExpectOnEveryIsa(expected, 0, [&] {
        std::vector<float> y(expected.size());
        Embedding(table.data(), dtype, dim, tokens, y.data());
        return y;
      });
    }
  }
}

// Every 16-bit pattern, and floats of every magnitude including ties.
TEST(Convert, AgreesWithFloat16) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    values.push_back(std::bit_cast<float>(bits << 16));
    values.push_back(std::bit_cast<float>((bits << 16) | 0x8000u));
    values.push_back(std::bit_cast<float>((bits << 16) | 0x1000u));
    values.push_back(std::bit_cast<float>((bits << 16) | 0x1001u));
    values.push_back(ToFloat(F16{static_cast<uint16_t>(bits)}));
  }
  const auto n = static_cast<int64_t>(values.size());
  for (CpuIsa isa : SupportedIsas()) {
    SCOPED_TRACE(CpuIsaName(isa));
    const WithIsa with(isa);
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      std::vector<uint16_t> got(values.size());
      std::vector<float> back(values.size());
      ConvertFromFloat(values.data(), n, dtype, got.data());
      ConvertToFloat(got.data(), dtype, n, back.data());
      size_t wrong = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t expected =
            dtype == DType::kBF16 ? ToBF16(values[i]).bits : ToF16(values[i]).bits;
        const float expected_back =
            dtype == DType::kBF16 ? ToFloat(BF16{expected}) : ToFloat(F16{expected});
        if (std::isnan(values[i])) {
          wrong += !std::isnan(back[i]);
        } else {
          wrong += got[i] != expected ||
                   std::bit_cast<uint32_t>(back[i]) != std::bit_cast<uint32_t>(expected_back);
        }
      }
      EXPECT_EQ(wrong, 0u) << DTypeName(dtype);
    }
  }
}

// Every pattern of E4M3; floats of every exponent around each place where rounding turns, with
// ties, and what saturates.
TEST(Convert, AgreesWithF8) {
  std::vector<uint8_t> patterns(256);
  std::iota(patterns.begin(), patterns.end(), uint8_t{0});
  std::vector<float> values = {
      448, std::nextafter(448.0f, 0.0f), std::nextafter(448.0f, 1e9f), 464, 480, 1e30f, -1e30f};
  // Sign, exponent, three bits of mantissa and the one behind, which rounds.
  for (uint32_t upper = 0; upper < 0x2000; ++upper) {
    for (const uint32_t lower : {0x0u, 0x1u, 0x3ffffu, 0x40000u, 0x40001u, 0x7ffffu})
      values.push_back(std::bit_cast<float>(upper << 19 | lower));
  }
  // subnormals' eighths.
  for (int eighths = -129; eighths <= 129; ++eighths)
    values.push_back(static_cast<float>(eighths) * 0x1p-12f);
  for (CpuIsa isa : SupportedIsas()) {
    SCOPED_TRACE(CpuIsaName(isa));
    const WithIsa with(isa);
    std::vector<float> all(256);
    ConvertToFloat(patterns.data(), DType::kF8, 256, all.data());
    for (const uint8_t bits : patterns) {
      const float expected = ToFloat(F8{bits});
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(all[bits])) << int{bits};
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(all[bits]), std::bit_cast<uint32_t>(expected))
            << int{bits};
      }
    }
    std::vector<uint8_t> got(values.size());
    ConvertFromFloat(values.data(), std::ssize(values), DType::kF8, got.data());
    size_t wrong = 0;
    for (size_t i = 0; i < values.size(); ++i) wrong += got[i] != ToF8(values[i]).bits;
    EXPECT_EQ(wrong, 0u);
  }
}

TEST(Convert, WritesExactlyNElements) {
  const std::vector<float> x = RandomFloats(40, 9);
  for (CpuIsa isa : SupportedIsas()) {
    const WithIsa with(isa);
    for (int64_t n = 0; n <= 40; ++n) {
      std::vector<uint16_t> half(41, 0xabcd);
      ConvertFromFloat(x.data(), n, DType::kBF16, half.data());
      EXPECT_EQ(half[static_cast<size_t>(n)], 0xabcd);
      std::vector<uint8_t> quarter(41, 0xab);
      ConvertFromFloat(x.data(), n, DType::kF8, quarter.data());
      EXPECT_EQ(quarter[static_cast<size_t>(n)], 0xab);
      std::vector<float> copy(41, -7.0f);
      ConvertToFloat(x.data(), DType::kF32, n, copy.data());
      EXPECT_EQ(copy[static_cast<size_t>(n)], -7.0f);
      EXPECT_TRUE(std::equal(x.begin(), x.begin() + n, copy.begin()));
    }
  }
}

}  // namespace
}  // namespace lamina
