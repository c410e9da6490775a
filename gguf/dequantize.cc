#include "gguf/dequantize.h"

#include <cstring>

#include "base/dtype.h"

// The layouts are those of ggml's block structs (ggml-common.h): fp16 scales, packed integers. All
// numbers are little-endian.
namespace lamina {
namespace {

uint32_t Byte(const std::byte* at) { return std::to_integer<uint32_t>(*at); }

float Half(const std::byte* at) {
  return ToFloat(F16{static_cast<uint16_t>(Byte(at) | Byte(at + 1) << 8)});
}

uint32_t Word(const std::byte* at) {
  return Byte(at) | Byte(at + 1) << 8 | Byte(at + 2) << 16 | Byte(at + 3) << 24;
}

float Signed(const std::byte* at) { return static_cast<float>(static_cast<int8_t>(Byte(at))); }

// Blocks of 32 elements: byte j of `quants` holds elements j and j + 16, and bits j and j + 16 of
// `high`, where there are any, are their fifth bits. `value` makes an element of its integer.
template <typename Value>
void UnpackPairs(const std::byte* quants, uint32_t high, Value value, float* out) {
  for (int j = 0; j < 16; ++j) {
    const uint32_t q = Byte(quants + j);
    out[j] = value((q & 0xf) | ((high >> j) & 1) << 4);
    out[j + 16] = value(q >> 4 | ((high >> (j + 16)) & 1) << 4);
  }
}

void DequantizeF32(const std::byte* block, float* out) { std::memcpy(out, block, sizeof(float)); }

void DequantizeF16(const std::byte* block, float* out) { *out = Half(block); }

void DequantizeBF16(const std::byte* block, float* out) {
  *out = ToFloat(BF16{static_cast<uint16_t>(Byte(block) | Byte(block + 1) << 8)});
}

// d, quants[16]: d * (q - 8).
void DequantizeQ4_0(const std::byte* block, float* out) {
  const float d = Half(block);
  UnpackPairs(
      block + 2, 0, [d](uint32_t q) { return d * static_cast<float>(static_cast<int>(q) - 8); },
      out);
}

// d, m, quants[16]: d * q + m.
void DequantizeQ4_1(const std::byte* block, float* out) {
  const float d = Half(block), m = Half(block + 2);
  UnpackPairs(
      block + 4, 0, [d, m](uint32_t q) { return d * static_cast<float>(q) + m; }, out);
}

// d, high[4], quants[16]: d * (q - 16).
void DequantizeQ5_0(const std::byte* block, float* out) {
  const float d = Half(block);
  UnpackPairs(
      block + 6, Word(block + 2),
      [d](uint32_t q) { return d * static_cast<float>(static_cast<int>(q) - 16); }, out);
}

// d, m, high[4], quants[16]: d * q + m.
void DequantizeQ5_1(const std::byte* block, float* out) {
  const float d = Half(block), m = Half(block + 2);
  UnpackPairs(
      block + 8, Word(block + 4), [d, m](uint32_t q) { return d * static_cast<float>(q) + m; },
      out);
}

// d, int8[32].
void DequantizeQ8_0(const std::byte* block, float* out) {
  const float d = Half(block);
  for (int j = 0; j < 32; ++j) out[j] = d * Signed(block + 2 + j);
}

// Scale and minimum of each of the eight groups of 32 elements of a Q4_K or Q5_K block, 6 bits
// each. Byte i of the first eight has the lower bits of group i's scale, or of group i - 4's
// minimum; its two upper bits belong to groups 4 to 7, whose lower bits are in the last four bytes.
struct GroupScale {
  float scale = 0;
  float minimum = 0;
};
GroupScale ScaleOf(const std::byte* scales, int group) {
  if (group < 4) {
    return {static_cast<float>(Byte(scales + group) & 63),
            static_cast<float>(Byte(scales + group + 4) & 63)};
  }
  const uint32_t low = Byte(scales + group + 4);
  return {static_cast<float>((low & 0xf) | Byte(scales + group - 4) >> 6 << 4),
          static_cast<float>(low >> 4 | Byte(scales + group) >> 6 << 4)};
}

// Blocks of 256 elements in groups of 32. Each 32 bytes of `quants` hold two groups: the first in
// the lower halves of the bytes. Bit g of byte l of `high`, where there is one, is the fifth bit of
// element l of group g.
void UnpackGroups(const std::byte* block, const std::byte* high, const std::byte* quants,
                  float* out) {
  const float d = Half(block), min = Half(block + 2);
  for (int group = 0; group < 8; ++group) {
    const GroupScale of = ScaleOf(block + 4, group);
    const float scale = d * of.scale, minimum = min * of.minimum;
    const std::byte* const pairs = quants + group / 2 * 32;
    for (int l = 0; l < 32; ++l) {
      uint32_t q = Byte(pairs + l) >> (group % 2 * 4) & 0xf;
      if (high != nullptr) q |= (Byte(high + l) >> group & 1) << 4;
      out[group * 32 + l] = scale * static_cast<float>(q) - minimum;
    }
  }
}

// d, min, scales[12], quants[128].
void DequantizeQ4_K(const std::byte* block, float* out) {
  UnpackGroups(block, nullptr, block + 16, out);
}

// d, min, scales[12], high[32], quants[128].
void DequantizeQ5_K(const std::byte* block, float* out) {
  UnpackGroups(block, block + 16, block + 48, out);
}

// low[128], high[64], int8 scales[16], d: d * scale * (q - 32). Each half of 128 elements has 64
// bytes of `low`, whose lower halves are its first 64 elements, and 32 bytes of `high`, with two
// bits for each of four elements that are 32 apart. A scale is for 16 elements.
void DequantizeQ6_K(const std::byte* block, float* out) {
  const float d = Half(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const uint32_t low = Byte(block + half * 64 + quarter % 2 * 32 + l) >> (quarter / 2 * 4) & 0xf;
    const uint32_t high = Byte(block + 128 + half * 32 + l) >> (quarter * 2) & 3;
    const float scale = d * Signed(block + 192 + i / 16);
    out[i] = scale * static_cast<float>(static_cast<int>(low | high << 4) - 32);
  }
}

}  // namespace

void Dequantize(GgmlType type, const std::byte* blocks, int64_t num_blocks, float* out) {
  const GgmlTypeInfo& info = InfoOf(type);
  const auto each = [&](auto dequantize) {
    for (int64_t i = 0; i < num_blocks; ++i)
      dequantize(blocks + i * info.block_bytes, out + i * info.block_elements);
  };
  switch (type) {
    case GgmlType::kF32: return each(DequantizeF32);
    case GgmlType::kF16: return each(DequantizeF16);
    case GgmlType::kBF16: return each(DequantizeBF16);
    case GgmlType::kQ4_0: return each(DequantizeQ4_0);
    case GgmlType::kQ4_1: return each(DequantizeQ4_1);
    case GgmlType::kQ5_0: return each(DequantizeQ5_0);
    case GgmlType::kQ5_1: return each(DequantizeQ5_1);
    case GgmlType::kQ8_0: return each(DequantizeQ8_0);
    case GgmlType::kQ4_K: return each(DequantizeQ4_K);
    case GgmlType::kQ5_K: return each(DequantizeQ5_K);
    case GgmlType::kQ6_K: return each(DequantizeQ6_K);
  }
}

}  // namespace lamina
