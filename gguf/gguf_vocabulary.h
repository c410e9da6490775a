// The tokens of a GGUF file and what it says of them: the keys "tokenizer.*".
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "gguf/gguf_model.h"

namespace lamina {

struct GgufVocabulary {
  // The kinds of SentencePiece, with its numbers.
  enum class Kind {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };

  std::string_view model;                // tokenizer.ggml.model: "llama", "gpt2", ...
  std::string_view pre;                  // tokenizer.ggml.pre; "" if it is missing
  std::vector<std::string_view> tokens;  // by id
  std::vector<float> scores;             // by id, or empty
  std::vector<Kind> kinds;               // by id, or empty: all are normal
  std::vector<std::string_view> merges;  // "left right", the first one is applied first
  std::optional<TokenId> bos, eos, unknown, padding;
  // Fill in the middle: what stands before a prefix, before a suffix, and where the middle comes.
  std::optional<TokenId> infill_prefix, infill_suffix, infill_middle;
  // Tokens that end an answer besides eos: end of turn, end of message.
  std::vector<TokenId> further_eos;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  std::optional<std::string_view> chat_template;

  Kind KindOf(TokenId id) const {
    return kinds.empty() ? Kind::kNormal : kinds[static_cast<size_t>(id)];
  }
  // "" without an id.
  std::string_view TextOf(std::optional<TokenId> id) const {
    return id ? tokens[static_cast<size_t>(*id)] : std::string_view();
  }

  // Borrows from `file`. kNotFound if the file has no tokens. kInvalidArgument, with file and key,
  // if a value has another type or length than it should, or an id is beyond the tokens.
  static Result<GgufVocabulary> Read(const GgufModel& file);
};

}  // namespace lamina
