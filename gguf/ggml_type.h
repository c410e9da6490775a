// The element types of tensors in GGUF files. Most store the elements of a row in blocks: a few
// bytes each that hold the elements as small integers, with a scale for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lamina {

// Those that lamina reads, with the numbers that they have in files.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
  kMXFP4 = 39,
};

struct GgmlTypeInfo {
  uint32_t number = 0;  // in files
  std::string_view name;
  uint32_t block_elements = 0;  // a row is a whole number of blocks
  uint32_t block_bytes = 0;
  bool is_read = false;  // whether GgmlType has it; the others are known by name and size only
};

// Null for a number that ggml has not, or no longer, given to a type. Thread: any.
const GgmlTypeInfo* FindGgmlType(uint32_t number);

inline const GgmlTypeInfo& InfoOf(GgmlType type) {
  return *FindGgmlType(static_cast<uint32_t>(type));
}

// "F32, F16, ...": the types that are read, for messages.
std::string ReadGgmlTypes();

}  // namespace lamina
