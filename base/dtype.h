// Element types of tensors, and storage types for floating point of 16 and 8 bits on the CPU.
// Conversions to float are exact; those from float round to the nearest value, ties to even.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lamina {

// The type of a tensor's elements. Those from kF8 on are for the KV cache only.
//
// The last two have codes and scales: the head_dim elements of K, or of V, of one token and one
// kv_head are codes of 8 bits that share one fp32 scale, and stand for code * scale. RoundWithScale
// in kernels/kv_rows.h is the rule by which they are made. Their names are those of vLLM.
enum class DType : uint8_t {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kF8 = 3,        // E4M3 without scales
  kI8Scaled = 4,  // codes are integers in [-127, 127]
  kF8Scaled = 5,  // codes are E4M3
};

// Of an element, with scales of its code.
constexpr size_t ElementSize(DType dtype) {  // bytes
  return dtype == DType::kF32 ? 4 : dtype == DType::kBF16 || dtype == DType::kF16 ? 2 : 1;
}

// Whether a scale belongs to the elements of each kv_head.
constexpr bool HasScales(DType dtype) {
  return dtype == DType::kI8Scaled || dtype == DType::kF8Scaled;
}

// Whether only K and V can have the type.
constexpr bool IsForKvOnly(DType dtype) { return ElementSize(dtype) == 1; }

// What K, or V, of one token takes for so many kv_heads, in memory as in messages. In a message it
// is [num_kv_heads, head_dim] elements, and behind them, if the type has scales, [num_kv_heads]
// fp32. Everything that counts bytes of K and V asks here.
constexpr int64_t KvRowBytes(DType dtype, int64_t num_kv_heads, int64_t head_dim) {
  const int64_t scale_bytes = HasScales(dtype) ? 4 : 0;
  return num_kv_heads * (head_dim * static_cast<int64_t>(ElementSize(dtype)) + scale_bytes);
}

// Names in configuration files and on command lines.
constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    case DType::kF8: return "fp8";
    case DType::kI8Scaled: return "int8_per_token_head";
    case DType::kF8Scaled: return "fp8_per_token_head";
  }
  return "";
}
constexpr std::optional<DType> DTypeNamed(std::string_view name) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return std::nullopt;
}

// bfloat16: the upper half of a float.
struct BF16 {
  uint16_t bits = 0;
};

constexpr float ToFloat(BF16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

constexpr BF16 ToBF16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  // Rounding could turn a NaN into infinity; it stays a NaN, and becomes quiet.
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// IEEE binary16.
struct F16 {
  uint16_t bits = 0;
};

constexpr float ToFloat(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1fu;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal: exact
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

constexpr F16 ToF16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t a = u & 0x7fffffffu;  // bits of the absolute value
  if (a > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (a >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  // Subnormal or zero in binary16: an addition lets the FPU round. The ulp of 0.5 is 2^-24, the
  // distance of binary16's subnormals.
  if (a < 0x38800000u) {
    const float shifted = std::bit_cast<float>(a) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = a + 0xfffu + ((a >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

// E4M3 of the OCP 8-bit floating point specification (OFP8): no infinities, one NaN of each sign,
// values up to 448.
struct F8 {
  uint8_t bits = 0;
};

inline constexpr float kMaxF8 = 448;

constexpr float ToFloat(F8 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x80u) << 24, a = x.bits & 0x7fu;
  if (a == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (a >= 8) return std::bit_cast<float>(sign | ((a << 20) + (120u << 23)));
  const float magnitude = static_cast<float>(a) * 0x1p-9f;  // subnormal: exact
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

// Values beyond kMaxF8, including infinity, become kMaxF8 with their sign.
constexpr F8 ToF8(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint8_t>((u >> 24) & 0x80u);
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return {static_cast<uint8_t>(sign | 0x7fu)};
  if (a >= std::bit_cast<uint32_t>(kMaxF8)) return {static_cast<uint8_t>(sign | 0x7eu)};
  // Subnormal or zero in E4M3: an addition lets the FPU round. The ulp of 2^14 is 2^-9, the
  // distance of E4M3's subnormals.
  if (a < 0x3c800000u) {
    const float shifted = std::bit_cast<float>(a) + 16384;
    return {static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u))};
  }
  const uint32_t rounded = a + 0x7ffffu + ((a >> 20) & 1u);
  return {static_cast<uint8_t>(sign | ((rounded - (120u << 23)) >> 20))};
}

}  // namespace lamina
