// tokenizer.json is foreign bytes: whatever they are, reading does not crash, and what is accepted
// can tokenise and decode. The input is the file; what stands behind a zero byte is
// tokenizer_config.json.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/json_tokenizer.h"

namespace {

nlohmann::json Parse(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

void Check(const lamina::Tokenizer& tokenizer, std::string_view text) {
  const auto encoded = tokenizer.Encode(text, true);
  if (!encoded.ok()) return;  // its regular expressions take too long
  const std::vector<lamina::TokenId>& ids = *encoded;
  lamina::Detokenizer detokenizer(tokenizer, {}, {});
  std::string streamed;
  for (const lamina::TokenId id : ids) {
    if (id < 0) std::abort();
    streamed += detokenizer.Push(id);
  }
  streamed += detokenizer.Finish();
  if (streamed != tokenizer.Decode(ids, true)) std::abort();
  if (tokenizer.MinTokens(text) > static_cast<int64_t>(ids.size())) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const nlohmann::json file = Parse(input.substr(0, end));
  nlohmann::json config =
      end == std::string_view::npos ? nlohmann::json::object() : Parse(input.substr(end + 1));
  if (!file.is_object()) return 0;
  if (!config.is_object()) config = nlohmann::json::object();
  const auto tokenizer = lamina::ParseJsonTokenizer(file, config, "tokenizer.json");
  if (!tokenizer.ok()) {
    if (tokenizer.status().message().empty()) std::abort();
    return 0;
  }
  for (const std::string_view text :
       {"", "a", " the cat's  \n\n12 \xE2\x98\x83\xF0\x9F\x98\x80 <s>x</s> ",
        "e\xCC\x81\xE2\x96\x81 aaaa"}) {
    Check(*tokenizer.value(), text);
  }
  for (lamina::TokenId id = -1; id < 64; ++id) {
    tokenizer.value()->TokenBytes(id);
    tokenizer.value()->IdToPiece(id);
  }
  return 0;
}
