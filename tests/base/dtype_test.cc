#include "base/dtype.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

// What a binary16 pattern means, from its fields.
double ValueOfF16(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

bool IsNaN(uint16_t bits, uint16_t infinity) { return (bits & 0x7fff) > infinity; }

TEST(F16, EveryPatternConvertsToItsValueAndBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float x = ToFloat(F16{bits});
    if (IsNaN(bits, 0x7c00)) {
      ASSERT_TRUE(std::isnan(x)) << i;
      ASSERT_TRUE(IsNaN(ToF16(x).bits, 0x7c00)) << i;
      continue;
    }
    ASSERT_EQ(std::signbit(x), (bits & 0x8000) != 0) << i;
    ASSERT_EQ(ToF16(x).bits, bits);
    if ((bits & 0x7fff) == 0x7c00) {
      ASSERT_TRUE(std::isinf(x));
    } else {
      ASSERT_EQ(double{x}, ValueOfF16(bits)) << i;
    }
  }
}

// Between two neighbours: the nearer one, and the even one at the middle. Covers subnormals and the
// step to infinity.
TEST(F16, RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const double low = ValueOfF16(bits);
    // Infinity begins halfway to 2^16.
    const double high = bits == 0x7bff ? 65536 : ValueOfF16(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(double{middle}, (low + high) / 2) << "exact in fp32";
    const auto even = static_cast<uint16_t>(bits + bits % 2);
    const auto next = static_cast<uint16_t>(bits + 1);
    for (float sign : {1.0f, -1.0f}) {
      const uint16_t sign_bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(ToF16(sign * middle).bits, even | sign_bit) << bits;
      ASSERT_EQ(ToF16(sign * std::nextafter(middle, 0.0f)).bits, bits | sign_bit) << bits;
      ASSERT_EQ(ToF16(sign * std::nextafter(middle, 1e9f)).bits, next | sign_bit) << bits;
    }
  }
}

TEST(F16, LargeValuesBecomeInfinityAndTinyOnesZero) {
  EXPECT_EQ(ToF16(1e30f).bits, 0x7c00);
  EXPECT_EQ(ToF16(-INFINITY).bits, 0xfc00);
  EXPECT_EQ(ToF16(1e-30f).bits, 0);
  EXPECT_EQ(ToF16(-1e-45f).bits, 0x8000);
}

TEST(BF16, EveryPatternConvertsToItsValueAndBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float x = ToFloat(BF16{bits});
    ASSERT_EQ(std::bit_cast<uint32_t>(x), i << 16);
    if (IsNaN(bits, 0x7f80)) {
      ASSERT_TRUE(IsNaN(ToBF16(x).bits, 0x7f80)) << i;
    } else {
      ASSERT_EQ(ToBF16(x).bits, bits);
    }
  }
}

TEST(BF16, RoundsToNearestEven) {
  for (uint32_t i = 0; i < 0x7f80; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const uint32_t middle = i << 16 | 0x8000u;
    ASSERT_EQ(ToBF16(std::bit_cast<float>(middle)).bits, bits + bits % 2);
    ASSERT_EQ(ToBF16(std::bit_cast<float>(middle - 1)).bits, bits);
    ASSERT_EQ(ToBF16(std::bit_cast<float>(middle + 1)).bits, bits + 1);
    ASSERT_EQ(ToBF16(std::bit_cast<float>(middle + 1 + 0x80000000u)).bits, (bits + 1) | 0x8000);
  }
}

// A NaN whose payload lies in the lower half only must not turn into infinity.
TEST(BF16, NaNStaysNaN) {
  EXPECT_TRUE(IsNaN(ToBF16(std::bit_cast<float>(0x7f800001u)).bits, 0x7f80));
}

// From its fields, as the specification lists them.
double ValueOfF8(uint8_t bits) {
  const int exponent = (bits >> 3) & 0xf, mantissa = bits & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(F8, EveryPatternConvertsToItsValueAndBack) {
  for (uint32_t i = 0; i < 0x100; ++i) {
    const auto bits = static_cast<uint8_t>(i);
    const float x = ToFloat(F8{bits});
    ASSERT_EQ(std::signbit(x), (bits & 0x80) != 0) << i;
    ASSERT_EQ(ToF8(x).bits, bits) << i;
    if ((bits & 0x7f) == 0x7f) {
      ASSERT_TRUE(std::isnan(x)) << i;
    } else {
      ASSERT_EQ(double{x}, ValueOfF8(bits)) << i;
    }
  }
}

TEST(F8, RoundsToNearestEven) {
  for (uint8_t bits = 0; bits < 0x7e; ++bits) {
    const double low = ValueOfF8(bits), high = ValueOfF8(static_cast<uint8_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    for (float sign : {1.0f, -1.0f}) {
      const int sign_bit = sign < 0 ? 0x80 : 0;
      ASSERT_EQ(ToF8(sign * middle).bits, (bits + bits % 2) | sign_bit) << int{bits};
      ASSERT_EQ(ToF8(sign * std::nextafter(middle, 0.0f)).bits, bits | sign_bit) << int{bits};
      ASSERT_EQ(ToF8(sign * std::nextafter(middle, 1e9f)).bits, (bits + 1) | sign_bit) << int{bits};
    }
  }
}

TEST(F8, WhatIsTooLargeBecomesTheLargest) {
  for (const float x : {std::nextafter(kMaxF8, 1e9f), 464.0f, 465.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(ToF8(x).bits, 0x7e) << x;
    EXPECT_EQ(ToF8(-x).bits, 0xfe) << x;
  }
  EXPECT_EQ(ToF8(-1e-30f).bits, 0x80);
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(ElementSize(DType::kF32), 4u);
  EXPECT_EQ(ElementSize(DType::kBF16), 2u);
  EXPECT_EQ(ElementSize(DType::kF16), 2u);
  EXPECT_EQ(ElementSize(DType::kF8), 1u);
  EXPECT_EQ(DTypeName(DType::kF16), "float16");
  EXPECT_EQ(KvRowBytes(DType::kF32, 4, 64), 4 * 64 * 4);
  EXPECT_EQ(KvRowBytes(DType::kBF16, 4, 64), 4 * 64 * 2);
  EXPECT_EQ(KvRowBytes(DType::kF8, 4, 64), 4 * 64);
  for (const DType dtype : {DType::kI8Scaled, DType::kF8Scaled}) {
    EXPECT_EQ(ElementSize(dtype), 1u) << "of a code";
    EXPECT_EQ(KvRowBytes(dtype, 4, 64), 4 * (64 + 4));
    EXPECT_TRUE(HasScales(dtype) && IsForKvOnly(dtype));
  }
  EXPECT_TRUE(IsForKvOnly(DType::kF8) && !HasScales(DType::kF8));
  EXPECT_FALSE(IsForKvOnly(DType::kF16) || IsForKvOnly(DType::kBF16) || IsForKvOnly(DType::kF32));
  EXPECT_EQ(DTypeName(DType::kI8Scaled), "int8_per_token_head");
  EXPECT_EQ(DTypeName(DType::kF8Scaled), "fp8_per_token_head");
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF8, DType::kI8Scaled, DType::kF8Scaled})
    EXPECT_EQ(DTypeNamed(DTypeName(dtype)), dtype);
  EXPECT_EQ(DTypeNamed("float8"), std::nullopt);
}

}  // namespace
}  // namespace lamina
