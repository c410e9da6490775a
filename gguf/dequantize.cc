#include "gguf/dequantize.h"

#include <cmath>
#include <cstring>

#include "base/dtype.h"

// The layouts are those of ggml's block structs (ggml-common.h): fp16 scales, packed integers. All
// numbers are little-endian.
namespace lamina {
namespace {

constexpr int kMostElements = 256, kMostGroups = 16;  // of a block

uint32_t Byte(const std::byte* at) { return std::to_integer<uint32_t>(*at); }

float Half(const std::byte* at) {
  return ToFloat(F16{static_cast<uint16_t>(Byte(at) | Byte(at + 1) << 8)});
}

uint32_t Word(const std::byte* at) {
  return Byte(at) | Byte(at + 1) << 8 | Byte(at + 2) << 16 | Byte(at + 3) << 24;
}

float Signed(const std::byte* at) { return static_cast<float>(static_cast<int8_t>(Byte(at))); }

// Where the parts of one block go.
struct Unpacked {
  int8_t* integers;
  float* scales;
  float* minima;
};

// Blocks of 32 elements: byte j of `quants` holds elements j and j + 16, and bits j and j + 16 of
// `high`, where there are any, are their fifth bits.
void UnpackPairs(const std::byte* quants, uint32_t high, int lowest, int8_t* integers) {
  for (int j = 0; j < 16; ++j) {
    const uint32_t q = Byte(quants + j);
    const uint32_t first = (q & 0xf) | ((high >> j) & 1) << 4,
                   second = q >> 4 | ((high >> (j + 16)) & 1) << 4;
    integers[j] = static_cast<int8_t>(static_cast<int>(first) + lowest);
    integers[j + 16] = static_cast<int8_t>(static_cast<int>(second) + lowest);
  }
}

// d, quants[16].
void UnpackQ4_0(const std::byte* block, const Unpacked& to) {
  *to.scales = Half(block);
  UnpackPairs(block + 2, 0, -8, to.integers);
}

// d, m, quants[16].
void UnpackQ4_1(const std::byte* block, const Unpacked& to) {
  *to.scales = Half(block);
  *to.minima = Half(block + 2);
  UnpackPairs(block + 4, 0, 0, to.integers);
}

// d, high[4], quants[16].
void UnpackQ5_0(const std::byte* block, const Unpacked& to) {
  *to.scales = Half(block);
  UnpackPairs(block + 6, Word(block + 2), -16, to.integers);
}

// d, m, high[4], quants[16].
void UnpackQ5_1(const std::byte* block, const Unpacked& to) {
  *to.scales = Half(block);
  *to.minima = Half(block + 2);
  UnpackPairs(block + 8, Word(block + 4), 0, to.integers);
}

// d, int8[32].
void UnpackQ8_0(const std::byte* block, const Unpacked& to) {
  *to.scales = Half(block);
  std::memcpy(to.integers, block + 2, 32);
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

// Blocks of 256 elements in groups of 32: d * scale * q - min * minimum. Each 32 bytes of `quants`
// hold two groups: the first in the lower halves of the bytes. Bit g of byte l of `high`, where
// there is one, is the fifth bit of element l of group g.
void UnpackGroups(const std::byte* block, const std::byte* high, const std::byte* quants,
                  const Unpacked& to) {
  const float d = Half(block), min = Half(block + 2);
  for (int group = 0; group < 8; ++group) {
    const GroupScale of = ScaleOf(block + 4, group);
    to.scales[group] = d * of.scale;
    to.minima[group] = -(min * of.minimum);
    const std::byte* const pairs = quants + group / 2 * 32;
    for (int l = 0; l < 32; ++l) {
      uint32_t q = Byte(pairs + l) >> (group % 2 * 4) & 0xf;
      if (high != nullptr) q |= (Byte(high + l) >> group & 1) << 4;
      to.integers[group * 32 + l] = static_cast<int8_t>(q);
    }
  }
}

// d, min, scales[12], quants[128].
void UnpackQ4_K(const std::byte* block, const Unpacked& to) {
  UnpackGroups(block, nullptr, block + 16, to);
}

// d, min, scales[12], high[32], quants[128].
void UnpackQ5_K(const std::byte* block, const Unpacked& to) {
  UnpackGroups(block, block + 16, block + 48, to);
}

// low[128], high[64], int8 scales[16], d: d * scale * (q - 32). Each half of 128 elements has 64
// bytes of `low`, whose lower halves are its first 64 elements, and 32 bytes of `high`, with two
// bits for each of four elements that are 32 apart. A scale is for 16 elements.
void UnpackQ6_K(const std::byte* block, const Unpacked& to) {
  const float d = Half(block + 208);
  for (int group = 0; group < 16; ++group) to.scales[group] = d * Signed(block + 192 + group);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const uint32_t low = Byte(block + half * 64 + quarter % 2 * 32 + l) >> (quarter / 2 * 4) & 0xf;
    const uint32_t high = Byte(block + 128 + half * 32 + l) >> (quarter * 2) & 3;
    to.integers[i] = static_cast<int8_t>(static_cast<int>(low | high << 4) - 32);
  }
}

// exponent, quants[16]: E2M1 times 2^(exponent - 127), here as integers times half of that.
void UnpackMXFP4(const std::byte* block, const Unpacked& to) {
  constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  *to.scales = std::ldexp(1.0f, static_cast<int>(Byte(block)) - 128);
  for (int j = 0; j < 16; ++j) {
    const uint32_t q = Byte(block + 1 + j);
    to.integers[j] = kTwice[q & 0xf];
    to.integers[j + 16] = kTwice[q >> 4];
  }
}

// Null for types that are not quantized.
using UnpackBlock = void (*)(const std::byte* block, const Unpacked& to);
struct QuantizedType {
  UnpackBlock unpack = nullptr;
  GgmlCodes codes;
};

const QuantizedType* FindQuantizedType(GgmlType type) {
  static constexpr QuantizedType kQ4_0{UnpackQ4_0, {.lowest = -8, .bits = 4}};
  static constexpr QuantizedType kQ4_1{UnpackQ4_1, {.bits = 4, .has_minima = true}};
  static constexpr QuantizedType kQ5_0{UnpackQ5_0, {.lowest = -16, .bits = 5}};
  static constexpr QuantizedType kQ5_1{UnpackQ5_1, {.bits = 5, .has_minima = true}};
  static constexpr QuantizedType kQ8_0{UnpackQ8_0, {.lowest = -128, .bits = 8}};
  static constexpr QuantizedType kQ4_K{UnpackQ4_K, {.bits = 4, .has_minima = true, .fp16 = false}};
  static constexpr QuantizedType kQ5_K{UnpackQ5_K, {.bits = 5, .has_minima = true, .fp16 = false}};
  static constexpr QuantizedType kQ6_K{UnpackQ6_K,
                                       {.lowest = -32, .bits = 6, .group = 16, .fp16 = false}};
  static constexpr QuantizedType kMXFP4{UnpackMXFP4,
                                        {.lowest = -12, .bits = 5, .fp16 = false, .e2m1 = true}};
  switch (type) {
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16: return nullptr;
    case GgmlType::kQ4_0: return &kQ4_0;
    case GgmlType::kQ4_1: return &kQ4_1;
    case GgmlType::kQ5_0: return &kQ5_0;
    case GgmlType::kQ5_1: return &kQ5_1;
    case GgmlType::kQ8_0: return &kQ8_0;
    case GgmlType::kQ4_K: return &kQ4_K;
    case GgmlType::kQ5_K: return &kQ5_K;
    case GgmlType::kQ6_K: return &kQ6_K;
    case GgmlType::kMXFP4: return &kMXFP4;
  }
  return nullptr;
}

void CopyPlain(GgmlType type, const std::byte* elements, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (type == GgmlType::kF32) std::memcpy(out + i, elements + i * 4, sizeof(float));
    if (type == GgmlType::kF16) out[i] = Half(elements + i * 2);
    if (type == GgmlType::kBF16) {
      const std::byte* const at = elements + i * 2;
      out[i] = ToFloat(BF16{static_cast<uint16_t>(Byte(at) | Byte(at + 1) << 8)});
    }
  }
}

}  // namespace

const GgmlCodes* CodesOf(GgmlType type) {
  const QuantizedType* const found = FindQuantizedType(type);
  return found == nullptr ? nullptr : &found->codes;
}

void Unpack(GgmlType type, const std::byte* blocks, int64_t num_blocks, int8_t* integers,
            float* scales, float* minima) {
  const GgmlTypeInfo& info = InfoOf(type);
  const QuantizedType& quantized = *FindQuantizedType(type);
  const int64_t groups = info.block_elements / quantized.codes.group;
  for (int64_t i = 0; i < num_blocks; ++i) {
    quantized.unpack(blocks + i * info.block_bytes,
                     {.integers = integers + i * info.block_elements,
                      .scales = scales + i * groups,
                      .minima = quantized.codes.has_minima ? minima + i * groups : nullptr});
  }
}

void Dequantize(GgmlType type, const std::byte* blocks, int64_t num_blocks, float* out) {
  const GgmlCodes* const codes = CodesOf(type);
  if (codes == nullptr) return CopyPlain(type, blocks, num_blocks, out);
  const GgmlTypeInfo& info = InfoOf(type);
  const int elements = static_cast<int>(info.block_elements);
  int8_t integers[kMostElements];
  float scales[kMostGroups], minima[kMostGroups];
  for (int64_t i = 0; i < num_blocks; ++i, out += elements) {
    Unpack(type, blocks + i * info.block_bytes, 1, integers, scales, minima);
    for (int first = 0, group = 0; first < elements; first += codes->group, ++group) {
      for (int j = first; j < first + codes->group; ++j) {
        const float product = scales[group] * static_cast<float>(integers[j]);
        out[j] = codes->has_minima ? product + minima[group] : product;
      }
    }
  }
}

}  // namespace lamina
