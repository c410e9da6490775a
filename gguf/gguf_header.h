// Parses and checks the header of a GGUF file, version 2 or 3 (docs/gguf.md of ggml). All numbers
// are little-endian. A STRING is a u64 length and so many bytes.
//
//   "GGUF", u32 version, u64 number of tensors, u64 number of keys
//   keys:     STRING name, u32 type, the value. An array is a u32 type of its elements, their u64
//             number, and the elements.
//   tensors:  STRING name, u32 number of dimensions, a u64 for each, the fastest one first, u32
//             type, u64 offset from the start of the data
//   padding to a multiple of general.alignment (32 if there is no such key), then the data
//
// Nothing is copied but names: values and tensors point into the file. So a header cannot ask for
// more memory than in proportion to its own size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/ggml_type.h"

namespace lamina {

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// A value, or an array of values. Borrows the file's bytes, which were checked.
struct GgufValue {
  GgufType type = GgufType::kUint8;  // of the value, or of each element
  bool is_array = false;
  uint64_t count = 1;                // of elements
  std::span<const std::byte> bytes;  // all elements, as they are in the file

  // Whole numbers of any type. REQUIRES: is_integer(), i < count.
  bool is_integer() const;
  int64_t Integer(uint64_t i = 0) const;  // a uint64 beyond int64 becomes its maximum
  // REQUIRES: a float32 or float64, i < count.
  double Real(uint64_t i = 0) const;
  // The strings of a value or of an array. REQUIRES: type is kString.
  std::vector<std::string_view> Strings() const;
};

struct GgufTensor {
  std::string_view name;
  uint32_t type = 0;           // FindGgmlType knows it; GgmlType need not have it
  std::vector<int64_t> shape;  // the fastest dimension last, as in safetensors files
  std::span<const std::byte> data;

  const GgmlTypeInfo& info() const { return *FindGgmlType(type); }
  // Elements and bytes of a row, the fastest dimension.
  int64_t width() const { return shape.back(); }
  int64_t num_rows() const;
  size_t row_bytes() const;
  // The blocks of `count` rows from `first` on, in the tensor's own format. REQUIRES: they are
  // within num_rows().
  std::span<const std::byte> Rows(int64_t first, int64_t count) const {
    return data.subspan(static_cast<size_t>(first) * row_bytes(),
                        static_cast<size_t>(count) * row_bytes());
  }
};

struct GgufHeader {
  uint32_t version = 0;
  uint64_t alignment = 32;  // of the data, and of each tensor in it
  std::map<std::string_view, GgufValue> values;
  std::vector<GgufTensor> tensors;  // in the file's order
};

// `file` is the whole file, which the header borrows. kCorrupt if it is no GGUF file or violates
// the format, with the offset at which, and the key or tensor; that includes counts and sizes that
// the file has no room for, keys and tensors that are there twice, and tensors outside of the data.
// kUnimplemented for version 1, big-endian files, arrays of arrays, and types that are not known.
Result<GgufHeader> ParseGgufHeader(std::span<const std::byte> file);

}  // namespace lamina
