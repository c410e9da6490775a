// Counts the tokens of a text, for datasets that have texts and no counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace lamina {

// A way to count, and its name for RequestTrace::counted_by.
struct TokenCounter {
  std::function<int64_t(std::string_view text)> count;
  std::string name;
};

// One token for every four bytes, which is near the truth for English.
TokenCounter EstimatedTokens();

// The model's own tokenizer, with the special tokens that it puts around a prompt. Borrows
// `tokenizer`; `dir` is where it came from.
TokenCounter TokensOf(const Tokenizer& tokenizer, const std::string& dir);

}  // namespace lamina
