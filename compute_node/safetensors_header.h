// The header of a safetensors file, checked.
//
//   u64 little-endian N (<= 100,000,000) | N bytes of JSON, first '{', perhaps padded with spaces |
//   data JSON: {"NAME": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, ..,
//   "__metadata__": {"KEY": "VALUE", ..}}
//
// Offsets count from the start of the data. The tensors fill the data exactly: no hole, no overlap,
// nothing behind them.
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
  std::string dtype;           // as written there: "BF16", "F32", "I64", ...
  std::vector<int64_t> shape;  // empty: a scalar
  uint64_t offset = 0;         // of the first byte, from the start of the file
  uint64_t size_bytes = 0;
};

// Parses and checks the header of a whole file's bytes; reads nothing behind the header. The
// entries come back in the order of their data. kCorrupt says what is wrong and in which tensor:
// also duplicate keys, sizes that disagree with shape and dtype, numbers that overflow, and a
// header that is cut short or absurdly long.
Result<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::span<const std::byte> file);

// "[1024, 256]"
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace lamina
