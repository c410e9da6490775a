// Compiled grammars from another process: whatever the bytes are, reading them and walking through
// what they say must never crash, take long or take much memory.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "grammar/constrained_text.h"

namespace {

std::shared_ptr<const lamina::Vocabulary> Bytes() {
  static const auto vocabulary = [] {
    std::vector<std::string> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    return std::make_shared<const lamina::Vocabulary>(std::move(bytes));
  }();
  return vocabulary;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lamina::Automata automata(Bytes());
  auto text = automata.Begin(std::string(reinterpret_cast<const char*>(data), size));
  if (!text.ok()) return 0;
  std::vector<lamina::TokenId> output;
  for (int step = 0; step < 8; ++step) {
    const auto next = text->Next(output);
    if (!next.ok() || next->tokens->count == 0) break;
    lamina::TokenId token = 0;
    while (!lamina::HasToken(next->tokens->bits, token)) ++token;
    output.push_back(token);
    automata.Trim();
  }
  return 0;
}
