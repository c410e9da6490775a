#include "plan/workload/token_counter.h"

#include <algorithm>

namespace lamina {

TokenCounter EstimatedTokens() {
  constexpr size_t kBytesPerToken = 4;
  const auto count = [](std::string_view text) {
    return std::max<int64_t>(
        1, static_cast<int64_t>((text.size() + kBytesPerToken - 1) / kBytesPerToken));
  };
  return {count, "estimated: a token for every 4 bytes"};
}

TokenCounter TokensOf(const Tokenizer& tokenizer, const std::string& dir) {
  const auto count = [&tokenizer](std::string_view text) {
    const Result<std::vector<TokenId>> ids = tokenizer.Encode(text, true);
    return ids.ok() ? static_cast<int64_t>(ids->size()) : EstimatedTokens().count(text);
  };
  return {count, "the tokenizer of " + dir};
}

}  // namespace lamina
