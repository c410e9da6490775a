// Events must not depend on where the stream was cut.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "api/sse_parser.h"

namespace {

std::vector<std::string> Parse(std::string_view bytes, size_t piece_bytes) {
  std::vector<std::string> events;
  lamina::SseParser parser([&](std::string_view data) {
    events.emplace_back(data);
    return true;
  });
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece_bytes, bytes.size())))
    (void)parser.Feed(bytes.substr(0, piece_bytes));
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (Parse(bytes, size) != Parse(bytes, data[0] % 16 + size_t{1})) std::abort();
  return 0;
}
