// Asking a model for the text between two others, fill in the middle: the tokens that models of
// code were trained with, and how a prompt is made of them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/tokenizer.h"

namespace lamina {

struct InfillFormat {
  TokenId prefix = 0, suffix = 0;  // stand before the text of that name
  // Stands behind both, where the text between them is to come; nullopt: nothing does.
  std::optional<TokenId> middle;
  bool suffix_first = false;  // the suffix stands before the prefix
  // What a model writes when the middle is complete, besides the model's own ends of an answer.
  std::vector<TokenId> ends;

  // The prompt, without a beginning-of-sequence token.
  std::vector<TokenId> Join(std::span<const TokenId> before, std::span<const TokenId> behind) const;
};

// By how the vocabulary spells them; nullopt: it has no such tokens.
std::optional<InfillFormat> FindInfillFormat(const Tokenizer& tokenizer);

// The same for a model's folder or GGUF file, which may name the tokens by its keys
// (tokenizer.ggml.fim_pre_token_id and others). Errors are those of reading the file.
Result<std::optional<InfillFormat>> LoadInfillFormat(const std::string& path,
                                                     const Tokenizer& tokenizer);

// Encodes text that follows another: without the space that some tokenizers put in front of a text.
// Errors are those of Tokenizer::Encode.
Result<std::vector<TokenId>> EncodeContinuation(const Tokenizer& tokenizer, std::string_view text);

}  // namespace lamina
