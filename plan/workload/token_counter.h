// How many tokens a text is, for datasets that have text and no counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace lamina {

struct TokenCounter {
  std::function<int64_t(std::string_view text)> count;
  std::string name;  // for RequestTrace::counted_by
};

// One token for every four bytes, which is near the truth for English.
TokenCounter EstimatedTokens();

// With the special tokens that the model puts around a prompt. Borrows `tokenizer`; `dir` is where
// it came from.
TokenCounter TokensOf(const Tokenizer& tokenizer, const std::string& dir);

}  // namespace lamina
