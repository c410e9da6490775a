#include "kernels/kv_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel_cases.h"
#include "kernels/reference/reference.h"

namespace lamina {
namespace {

struct Rounded {
  std::vector<uint8_t> codes;
  float scale;

  float At(size_t i, DType dtype) const {
    return reference::At(codes.data(), dtype, static_cast<int64_t>(i)) * scale;
  }
};

// With a guard behind the codes.
Rounded Round(const std::vector<float>& x, DType dtype) {
  Rounded rounded = {std::vector<uint8_t>(x.size() + 1, 0xab), NAN};
  rounded.scale = RoundWithScale(x.data(), std::ssize(x), dtype, rounded.codes.data());
  EXPECT_EQ(rounded.codes.back(), 0xab) << "written behind the end";
  rounded.codes.pop_back();
  return rounded;
}

void ExpectAsTheReference(const std::vector<float>& x) {
  for (const DType dtype : kKvDTypesWithScales) {
    std::vector<uint8_t> codes(x.size());
    const float scale = reference::RoundWithScale(x.data(), std::ssize(x), dtype, codes.data());
    for (const CpuIsa isa : SupportedIsas()) {
      SCOPED_TRACE(std::string(CpuIsaName(isa)) + " " + std::string(DTypeName(dtype)));
      const WithIsa with(isa);
      const Rounded got = Round(x, dtype);
      EXPECT_EQ(std::bit_cast<uint32_t>(got.scale), std::bit_cast<uint32_t>(scale));
      EXPECT_EQ(got.codes, codes);
    }
  }
}

TEST(RoundWithScale, GivesTheBitsOfTheReferenceForEveryLengthAndMagnitude) {
  for (size_t n = 1; n <= 256; n += n < 40 ? 1 : 8) {
    for (const float magnitude : {1.0f, 1e-30f, 1e30f, 3e38f, 1e-38f, 1e-42f, 1e-44f, 4e-45f}) {
      SCOPED_TRACE(std::to_string(n) + " of " + std::to_string(magnitude));
      ExpectAsTheReference(RandomFloats(n, static_cast<uint32_t>(n), magnitude));
    }
  }
}

TEST(RoundWithScale, RoundsHalvesToTheEvenCode) {
  // The scale is 1.
  std::vector<float> x = {127};
  for (int i = -127; i < 127; ++i) x.push_back(static_cast<float>(i) + 0.5f);
  for (const CpuIsa isa : SupportedIsas()) {
    const WithIsa with(isa);
    const Rounded got = Round(x, DType::kI8Scaled);
    EXPECT_EQ(got.scale, 1);
    for (size_t i = 1; i < x.size(); ++i)
      EXPECT_EQ(static_cast<int8_t>(got.codes[i]), 2 * std::floor((x[i] + 0.5f) / 2)) << x[i];
  }
  ExpectAsTheReference(x);
}

TEST(RoundWithScale, IsWithinHalfOfTheDistanceOfCodes) {
  for (const float magnitude : {1e-30f, 0.01f, 1.0f, 70.0f, 1e30f}) {
    const std::vector<float> x = RandomFloats(128, 3, magnitude);
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::abs(v));
    const Rounded of_i8 = Round(x, DType::kI8Scaled), of_f8 = Round(x, DType::kF8Scaled);
    EXPECT_FLOAT_EQ(of_i8.scale, largest / 127);
    EXPECT_FLOAT_EQ(of_f8.scale, largest / 448);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_LE(std::abs(of_i8.At(i, DType::kI8Scaled) - x[i]), of_i8.scale * 0.50001f);
      // Three bits of mantissa, and subnormals in steps of 2^-9.
      const float half = std::max(std::abs(x[i]) / 16, of_f8.scale * 0x1p-10f);
      EXPECT_LE(std::abs(of_f8.At(i, DType::kF8Scaled) - x[i]), half * 1.00001f);
    }
  }
}

TEST(RoundWithScale, ZerosAndWhatUnderflowsAreZero) {
  for (const float x : {0.0f, -0.0f, 1e-45f, -5e-44f}) {
    for (const DType dtype : kKvDTypesWithScales) {
      for (const CpuIsa isa : SupportedIsas()) {
        const WithIsa with(isa);
        const Rounded got = Round(std::vector<float>(24, x), dtype);
        EXPECT_EQ(std::bit_cast<uint32_t>(got.scale), 0u) << x;
        EXPECT_EQ(got.codes, std::vector<uint8_t>(24, 0)) << x;
      }
    }
  }
}

TEST(RoundWithScale, WhatIsNoNumberBecomesNone) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float signalling = std::bit_cast<float>(0xff800001u);
  for (const float odd : {NAN, -NAN, signalling, kInf, -kInf}) {
    for (const size_t n : {8u, 40u, 128u}) {
      for (const size_t at : {size_t{0}, n / 2 + 1, n - 1}) {
        std::vector<float> x = RandomFloats(n, 5);
        x[at] = odd;
        ExpectAsTheReference(x);
        for (const DType dtype : kKvDTypesWithScales) {
          for (const CpuIsa isa : SupportedIsas()) {
            const WithIsa with(isa);
            const Rounded got = Round(x, dtype);
            EXPECT_EQ(std::bit_cast<uint32_t>(got.scale), 0x7fc00000u);
            EXPECT_EQ(got.codes, std::vector<uint8_t>(n, 0));
          }
        }
      }
    }
  }
}

TEST(PackKvRow, LaysOutElementsThenScalesAndKeepsHeadsApart) {
  constexpr int kHeads = 3, kHeadDim = 24;
  std::vector<float> x = RandomFloats(kHeads * kHeadDim, 7);
  x[kHeadDim + 5] = NAN;  // of the second head
  for (const DType dtype : kKvDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const std::vector<std::byte> expected = EncodeRow(x, kHeads, dtype);
    ASSERT_EQ(std::ssize(expected), KvRowBytes(dtype, kHeads, kHeadDim));
    for (const CpuIsa isa : SupportedIsas()) {
      const WithIsa with(isa);
      for (const size_t shift : {0u, 1u}) {  // rows need not be aligned
        std::vector<std::byte> row(expected.size() + shift + 1, std::byte{0xab});
        EXPECT_EQ(PackKvRow(x.data(), kHeads, kHeadDim, dtype, row.data() + shift),
                  row.data() + shift + expected.size());
        EXPECT_EQ(std::memcmp(row.data() + shift, expected.data(), expected.size()), 0);
        EXPECT_EQ(row.back(), std::byte{0xab});
      }
    }
  }
}

}  // namespace
}  // namespace lamina
