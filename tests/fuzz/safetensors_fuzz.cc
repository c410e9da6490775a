// The safetensors header is foreign bytes: whatever they are, parsing neither crashes nor accepts a
// tensor that lies outside the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "compute_node/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  const auto entries = lamina::ParseSafetensorsHeader(file);
  if (!entries.ok()) {
    if (entries.status().message().empty()) std::abort();
    return 0;
  }
  uint64_t total_bytes = 0;
  for (const lamina::SafetensorsEntry& entry : *entries) {
    if (entry.offset > size || entry.size_bytes > size - entry.offset) std::abort();
    total_bytes += entry.size_bytes;
  }
  if (total_bytes > size) std::abort();
  return 0;
}
