#if LAMINA_HAS_CUDA
#include "kernels/cuda/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "cuda_cases.h"
#include "kernel_cases.h"
#include "kernels/reference/reference.h"

namespace lamina::cuda {
namespace {

// Around a warp, a block and the several elements that a thread takes.
constexpr int64_t kWidths[] = {1, 7, 31, 32, 33, 64, 255, 256, 257, 1000, 4096};

using CudaElementwise = CudaTest;

TEST_F(CudaElementwise, RmsNormMatchesTheReference) {
  for (const int64_t dim : kWidths) {
    for (const float scale : {1e-3f, 1.0f, 100.0f}) {
      const auto n = static_cast<size_t>(dim);
      const std::vector<float> x = RandomFloats(3 * n, 1, scale), weight = RandomFloats(n, 2),
                               ones(n, 1.0f);
      const DeviceBuffer device_x = Upload(x), device_weight = Upload(weight);
      std::vector<float> expected(x.size());
      reference::RmsNorm(x.data(), weight.data(), 1e-5f, 3, dim, expected.data());
      EXPECT_LT(LargestError(OutputOf<float>(x.size(),
                                             [&](float* y) {
                                               RmsNorm(device_x.as<float>(),
                                                       device_weight.as<float>(), 1e-5f, 3, dim, y,
                                                       stream());
                                             }),
                             expected),
                2e-6)
          << dim;
      reference::RmsNorm(x.data(), ones.data(), 1e-5f, 3, dim, expected.data());
      EXPECT_LT(LargestError(OutputOf<float>(x.size(),
                                             [&](float* y) {
                                               RmsNorm(device_x.as<float>(), nullptr, 1e-5f, 3, dim,
                                                       y, stream());
                                             }),
                             expected),
                2e-6)
          << dim;
    }
  }
}

TEST_F(CudaElementwise, NormsMayWorkInPlaceAndRowByRow) {
  constexpr int64_t kDim = 300;
  const std::vector<float> x = RandomFloats(4 * kDim, 1);
  const DeviceBuffer device_x = Upload(x);
  const std::vector<float> all = OutputOf<float>(x.size(), [&](float* y) {
    RmsNorm(device_x.as<float>(), nullptr, 1e-5f, 4, kDim, y, stream());
  });
  const DeviceBuffer in_place = Upload(x);
  RmsNorm(in_place.as<float>(), nullptr, 1e-5f, 4, kDim, in_place.as<float>(), stream());
  EXPECT_TRUE(SameBits(Download<float>(in_place), all));
  const std::vector<float> third = OutputOf<float>(kDim, [&](float* y) {
    RmsNorm(device_x.as<float>() + 2 * kDim, nullptr, 1e-5f, 1, kDim, y, stream());
  });
  EXPECT_TRUE(SameBits(third, {all.begin() + 2 * kDim, all.begin() + 3 * kDim}));
}

TEST_F(CudaElementwise, AddRmsNormIsAddThenRmsNorm) {
  for (const int64_t dim : kWidths) {
    const auto n = 2 * static_cast<size_t>(dim);
    const DeviceBuffer a = Upload(RandomFloats(n, 1)), b = Upload(RandomFloats(n, 2)),
                       weight = Upload(RandomFloats(n / 2, 3));
    const DeviceBuffer sum = Poisoned<float>(n), y = Poisoned<float>(n),
                       fused_sum = Poisoned<float>(n);
    Add(a.as<float>(), b.as<float>(), static_cast<int64_t>(n), sum.as<float>(), stream());
    RmsNorm(sum.as<float>(), weight.as<float>(), 1e-6f, 2, dim, y.as<float>(), stream());
    const std::vector<float> fused = OutputOf<float>(n, [&](float* out) {
      AddRmsNorm(a.as<float>(), b.as<float>(), weight.as<float>(), 1e-6f, 2, dim,
                 fused_sum.as<float>(), out, stream());
    });
    EXPECT_TRUE(SameBits(fused, Download<float>(y))) << dim;
    EXPECT_TRUE(SameBits(Download<float>(fused_sum), Download<float>(sum))) << dim;
    AddRmsNorm(a.as<float>(), b.as<float>(), weight.as<float>(), 1e-6f, 2, dim, a.as<float>(),
               y.as<float>(), stream());
    EXPECT_TRUE(SameBits(Download<float>(a), Download<float>(sum))) << dim;
    EXPECT_TRUE(SameBits(Download<float>(y), fused)) << dim;
    const DeviceBuffer in_place = Upload(RandomFloats(n, 1));
    AddRmsNorm(in_place.as<float>(), b.as<float>(), weight.as<float>(), 1e-6f, 2, dim,
               b.as<float>(), in_place.as<float>(), stream());
    EXPECT_TRUE(SameBits(Download<float>(b), Download<float>(sum))) << dim;
    EXPECT_TRUE(SameBits(Download<float>(in_place), fused)) << dim;
  }
}

TEST_F(CudaElementwise, LayerNormMatchesTheReference) {
  for (const int64_t dim : kWidths) {
    const auto n = static_cast<size_t>(dim);
    std::vector<float> x = RandomFloats(3 * n, 1, 5), weight = RandomFloats(n, 2),
                       bias = RandomFloats(n, 3);
    for (float& v : x) v += 20;  // a mean that matters
    const DeviceBuffer device_x = Upload(x), device_weight = Upload(weight),
                       device_bias = Upload(bias);
    std::vector<float> expected(x.size());
    reference::LayerNorm(x.data(), {weight.data(), bias.data()}, 1e-5f, 3, dim, expected.data());
    EXPECT_LT(LargestError(OutputOf<float>(x.size(),
                                           [&](float* y) {
                                             LayerNorm(device_x.as<float>(),
                                                       {device_weight.as<float>(),
                                                        device_bias.as<float>()},
                                                       1e-5f, 3, dim, y, stream());
                                           }),
                           expected),
              2e-5)
        << dim;
    const std::vector<float> ones(n, 1.0f), zeros(n, 0.0f);
    reference::LayerNorm(x.data(), {ones.data(), zeros.data()}, 1e-5f, 3, dim, expected.data());
    EXPECT_LT(LargestError(OutputOf<float>(x.size(),
                                           [&](float* y) {
                                             LayerNorm(device_x.as<float>(), {}, 1e-5f, 3, dim, y,
                                                       stream());
                                           }),
                           expected),
              2e-5)
        << dim;
  }
}

TEST_F(CudaElementwise, RopeMatchesTheReference) {
  constexpr RopeShape kShapes[] = {{1, 8, 8},         {3, 48, 48},       {2, 64, 64},
                                   {32, 128, 128},    {4, 80, 32},       {2, 96, 24},
                                   {3, 48, 48, true}, {2, 80, 32, true}, {2, 96, 72, false, 1.19f}};
  const std::vector<int32_t> positions = {0, 1, 17, 4095, 100000};
  const DeviceBuffer device_positions = Upload(positions);
  for (const RopeShape& shape : kShapes) {
    std::vector<float> inv_freq;
    for (int j = 0; j < shape.rotary_dim / 2; ++j) {
      inv_freq.push_back(
          std::pow(10000.0f, -2.0f * static_cast<float>(j) / static_cast<float>(shape.rotary_dim)));
    }
    const std::vector<float> x =
        RandomFloats(positions.size() * static_cast<size_t>(shape.num_heads * shape.head_dim), 3);
    const DeviceBuffer device_x = Upload(x), device_inv_freq = Upload(inv_freq);
    std::vector<float> expected(x.size());
    reference::Rope(x.data(), positions, inv_freq, shape, expected.data());
    const auto rotate = [&](const float* from, float* y) {
      Rope(from, device_positions.as<int32_t>(), device_inv_freq.as<float>(), shape,
           std::ssize(positions), y, stream());
    };
    const std::vector<float> got =
        OutputOf<float>(x.size(), [&](float* y) { rotate(device_x.as<float>(), y); });
    EXPECT_LT(LargestError(got, expected), 1e-6) << shape.head_dim;
    rotate(device_x.as<float>(), device_x.as<float>());
    EXPECT_TRUE(SameBits(Download<float>(device_x), got)) << shape.head_dim;
  }
}

TEST_F(CudaElementwise, SigmoidGateMatchesTheReference) {
  const std::vector<float> gate = {-30, -0.7f, 0, 3};
  const DeviceBuffer device_gate = Upload(gate);
  for (const int64_t dim : {1, 37, 300}) {
    const std::vector<float> x = RandomFloats(static_cast<size_t>(4 * dim), 9, 2);
    const DeviceBuffer device_x = Upload(x);
    std::vector<float> expected(x.size());
    reference::SigmoidGate(gate.data(), x.data(), 4, dim, expected.data());
    const std::vector<float> got = OutputOf<float>(x.size(), [&](float* y) {
      SigmoidGate(device_gate.as<float>(), device_x.as<float>(), 4, dim, y, stream());
    });
    EXPECT_LT(LargestError(got, expected), 1e-6) << dim;
  }
}

TEST_F(CudaElementwise, GrowByPositionMatchesTheReference) {
  const std::vector<int32_t> positions = {0, 6, 7, 8191, 2147483647};
  const PositionGrowth growth{.scale = 0.3f, .period = 8};
  const DeviceBuffer device_positions = Upload(positions);
  for (const int64_t dim : {1, 37, 300}) {
    const std::vector<float> x = RandomFloats(positions.size() * static_cast<size_t>(dim), 9, 2);
    const DeviceBuffer device_x = Upload(x);
    std::vector<float> expected(x.size());
    reference::GrowByPosition(x.data(), positions, growth, dim, expected.data());
    const std::vector<float> got = OutputOf<float>(x.size(), [&](float* y) {
      GrowByPosition(device_x.as<float>(), device_positions.as<int32_t>(), growth,
                     std::ssize(positions), dim, y, stream());
    });
    EXPECT_LT(LargestError(got, expected), 1e-5) << dim;
  }
}

TEST_F(CudaElementwise, RowsOfLayerNormTakeTurnsWithSetsOfWeights) {
  for (const int64_t dim : {8, 40, 300}) {
    const auto n = static_cast<size_t>(dim);
    const std::vector<float> x = RandomFloats(6 * n, 1, 3), weight = RandomFloats(3 * n, 2),
                             bias = RandomFloats(3 * n, 3);
    const DeviceBuffer device_x = Upload(x), device_weight = Upload(weight),
                       device_bias = Upload(bias);
    std::vector<float> expected(x.size());
    reference::LayerNorm(x.data(), {weight.data(), bias.data(), 3}, 1e-5f, 6, dim, expected.data());
    const LayerNormWeights weights{device_weight.as<float>(), device_bias.as<float>(), 3};
    const std::vector<float> got = OutputOf<float>(x.size(), [&](float* y) {
      LayerNorm(device_x.as<float>(), weights, 1e-5f, 6, dim, y, stream());
    });
    EXPECT_LT(LargestError(got, expected), 2e-5) << dim;
  }
}

// Every activation over a range of values, ends and oddities, against double precision.
TEST_F(CudaElementwise, ActivationsMatchDoublePrecision) {
  std::vector<float> x, up;
  for (float at = -12; at < 12; at += 0.0137f) x.push_back(at);
  for (const float at : {0.0f, -0.0f, 1e-20f, -40.0f, 40.0f, 100.0f, -100.0f}) x.push_back(at);
  up = RandomFloats(x.size(), 4);
  const auto n = std::ssize(x);
  const DeviceBuffer device_x = Upload(x), device_up = Upload(up);
  const auto expect = [&](const char* name, const auto& kernel, const auto& oracle) {
    std::vector<float> expected(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      expected[i] = static_cast<float>(oracle(double{x[i]}, double{up[i]}));
    EXPECT_LT(LargestError(OutputOf<float>(x.size(), kernel), expected), 1e-6) << name;
  };
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  const auto gelu_tanh = [](double v) {
    return v / 2 *
           (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
  };
  const float *in = device_x.as<float>(), *second = device_up.as<float>();
  expect(
      "silu", [&](float* y) { Silu(in, n, y, stream()); },
      [&](double v, double) { return silu(v); });
  expect(
      "silu * up", [&](float* y) { SiluMul(in, second, n, y, stream()); },
      [&](double v, double u) { return silu(v) * u; });
  expect(
      "swiglu", [&](float* y) { SwigluOai(in, second, 0.5f, n, y, stream()); },
      [&](double v, double u) {
        const double gate = std::min(v, 0.5);
        return gate / (1 + std::exp(-1.702 * gate)) * (std::clamp(u, -0.5, 0.5) + 1);
      });
  expect(
      "gelu by tanh", [&](float* y) { GeluTanh(in, n, y, stream()); },
      [&](double v, double) { return gelu_tanh(v); });
  expect(
      "gelu * up", [&](float* y) { GeluMul(in, second, n, y, stream()); },
      [&](double v, double u) { return gelu_tanh(v) * u; });
  expect(
      "gelu", [&](float* y) { Gelu(in, n, y, stream()); },
      [](double v, double) { return v / 2 * std::erfc(-v / std::sqrt(2.0)); });
  expect(
      "relu", [&](float* y) { Relu(in, n, y, stream()); },
      [](double v, double) { return v > 0 ? v : 0; });
  expect(
      "scale", [&](float* y) { Scale(in, 0.3f, n, y, stream()); },
      [](double v, double) { return v * double{0.3f}; });
  expect(
      "soft cap", [&](float* y) { SoftCap(in, 5, n, y, stream()); },
      [](double v, double) { return 5 * std::tanh(v / 5); });
  expect(
      "add", [&](float* y) { Add(in, second, n, y, stream()); },
      [](double v, double u) { return v + u; });
  expect(
      "mul", [&](float* y) { Mul(in, second, n, y, stream()); },
      [](double v, double u) { return v * u; });
}

TEST_F(CudaElementwise, InfinityAndNaNAreNotLost) {
  const std::vector<float> odd = {NAN, INFINITY, -INFINITY};
  const DeviceBuffer x = Upload(odd);
  const auto of = [&](const auto& kernel) {
    return OutputOf<float>(3, [&](float* y) { kernel(x.as<float>(), 3, y, stream()); });
  };
  const auto expect = [&](const std::vector<float>& got, float at_minus_infinity) {
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_EQ(got[1], INFINITY);
    EXPECT_EQ(got[2], at_minus_infinity);
  };
  expect(of([](const float* v, int64_t n, float* y, Stream& s) { Gelu(v, n, y, s); }), 0);
  expect(of([](const float* v, int64_t n, float* y, Stream& s) { Relu(v, n, y, s); }), 0);
}

TEST_F(CudaElementwise, EmbeddingTakesRowsOfEveryType) {
  for (const DType dtype : kAllDTypes) {
    for (const int64_t dim : {1, 33, 288}) {
      constexpr int64_t kVocab = 50;
      const DeviceBuffer table =
          Upload(Encode(RandomFloats(kVocab * static_cast<size_t>(dim), 6, 3), dtype));
      const std::vector<std::byte> host = Download<std::byte>(table);
      const std::vector<TokenId> tokens = {0, 49, 7, 7};
      const DeviceBuffer device_tokens = Upload(tokens);
      std::vector<float> expected(tokens.size() * static_cast<size_t>(dim));
      reference::Embedding(host.data(), dtype, dim, tokens, expected.data());
      EXPECT_TRUE(SameBits(OutputOf<float>(expected.size(),
                                           [&](float* y) {
                                             Embedding(table.data(), dtype, dim,
                                                       device_tokens.as<TokenId>(), 4, y, stream());
                                           }),
                           expected));
    }
  }
}

// All 16-bit patterns one way; values between and around them the other way.
TEST_F(CudaElementwise, ConversionsAreThoseOfTheCpu) {
  std::vector<uint16_t> bits(1 << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  const DeviceBuffer halves = Upload(bits);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const std::vector<float> floats = OutputOf<float>(bits.size(), [&](float* y) {
      ConvertToFloat(halves.data(), dtype, std::ssize(bits), y, stream());
    });
    std::vector<float> between;
    for (size_t i = 0; i < bits.size(); ++i) {
      const float expected = dtype == DType::kBF16 ? ToFloat(BF16{bits[i]}) : ToFloat(F16{bits[i]});
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(floats[i])) << i;
        continue;
      }
      ASSERT_EQ(floats[i], expected) << i;
      const float next = std::nextafter(expected, INFINITY),
                  half_a_step = expected * (1 + 1.0f / (dtype == DType::kBF16 ? 512 : 4096));
      between.insert(between.end(), {expected, next, half_a_step, std::nextafter(half_a_step, 0.0f),
                                     expected * 1.3f});
    }
    const DeviceBuffer x = Upload(between);
    const std::vector<uint16_t> got = OutputOf<uint16_t>(between.size(), [&](uint16_t* y) {
      ConvertFromFloat(x.as<float>(), std::ssize(between), dtype, y, stream());
    });
    for (size_t i = 0; i < between.size(); ++i) {
      ASSERT_EQ(got[i], dtype == DType::kBF16 ? ToBF16(between[i]).bits : ToF16(between[i]).bits)
          << between[i];
    }
  }
}

// All patterns one way, NaN too; the other way what lies between and around them, and any bits.
TEST_F(CudaElementwise, ConversionsOfFp8AreThoseOfTheCpu) {
  std::vector<uint8_t> bits(256);
  std::iota(bits.begin(), bits.end(), uint8_t{0});
  const DeviceBuffer bytes = Upload(bits);
  const std::vector<float> floats = OutputOf<float>(bits.size(), [&](float* y) {
    ConvertToFloat(bytes.data(), DType::kF8, std::ssize(bits), y, stream());
  });
  std::vector<float> x = {0.0f, -0.0f, INFINITY, -INFINITY, NAN,    -NAN,
                          464,  465,   480,      -1e30f,    1e-30f, -1e-40f};
  for (size_t i = 0; i < bits.size(); ++i) {
    const float expected = ToFloat(F8{bits[i]});
    ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(expected)) << i;
    const float border = (expected + ToFloat(F8{static_cast<uint8_t>(bits[i] + 1)})) / 2;
    for (const float at : {expected, border})
      x.insert(x.end(), {at, std::nextafter(at, INFINITY), std::nextafter(at, -INFINITY)});
  }
  std::mt19937 random(3);
  for (int i = 0; i < 50000; ++i)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (const float value : RandomFloats(50000, 4, 500)) x.push_back(value);
  const DeviceBuffer device_x = Upload(x);
  const std::vector<uint8_t> got = OutputOf<uint8_t>(x.size(), [&](uint8_t* y) {
    ConvertFromFloat(device_x.as<float>(), std::ssize(x), DType::kF8, y, stream());
  });
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], ToF8(x[i]).bits) << x[i];
}

TEST_F(CudaElementwise, NothingToDoIsNothingDone) {
  RmsNorm(nullptr, nullptr, 1e-5f, 0, 64, nullptr, stream());
  Embedding(nullptr, DType::kBF16, 64, nullptr, 0, nullptr, stream());
  Rope(nullptr, nullptr, nullptr, {1, 8, 8}, 0, nullptr, stream());
  Silu(nullptr, 0, nullptr, stream());
  Add(nullptr, nullptr, 0, nullptr, stream());
  ConvertToFloat(nullptr, DType::kF16, 0, nullptr, stream());
  EXPECT_TRUE(stream().Synchronize().ok());
}

}  // namespace
}  // namespace lamina::cuda
#endif
