// Parses and checks the header of a safetensors file (github.com/huggingface/safetensors). The
// file:
//
//   u64      N, little-endian, at most 100,000,000
//   N bytes  JSON, beginning with '{', perhaps padded with spaces:
//              {"NAME": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, ..,
//               "__metadata__": {"KEY": "VALUE", ..}}
//   data     to the end of the file
//
// Offsets count from the start of the data. The tensors fill the data exactly, without holes or
// overlaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;           // the text in the file: "BF16", "F32", "I64", ...
  std::vector<int64_t> shape;  // empty for a scalar
  uint64_t offset = 0;         // of the first byte, from the start of the file
  uint64_t size_bytes = 0;
};

// `file` is the whole file, of which only the header is read. Returns the entries in the order of
// their data. kCorrupt, with the tensor and what is wrong, if the header violates the format; that
// includes duplicate keys, sizes that disagree with shape and dtype, numbers that overflow, and a
// header that is cut short or too long.
Result<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::span<const std::byte> file);

// "[1024, 256]"
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace lamina
