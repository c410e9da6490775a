// Turns the tokens of one continuation into text that can be sent as it grows.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace lamina {

struct DetokenizerOptions {
  std::vector<std::string> stop;  // none is empty
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  int64_t min_tokens = 0;  // stop strings are not looked for before so many tokens
  bool offsets = false;    // somebody calls TakeOffsets()
  // Special tokens of the answer that are not skipped: a few.
  std::vector<TokenId> kept_special = {};
};

// Everything that was returned, joined, is the text of prompt + continuation without the prompt's
// text, cut at the first stop string. It does not depend on how the text is divided into tokens.
// What is whole is not taken back (DecodeState::characters_at_once): a byte that belongs to no
// character is U+FFFD, and the characters that stand as bytes in front of it stay.
// Returned text consists of whole characters; the end of the text that could be the beginning of a
// stop string is held back.
class Detokenizer {
 public:
  // Borrows the tokenizer. `prompt` has the tokens that the continuation follows; they decide about
  // the space at its start.
  Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options,
              std::span<const TokenId> prompt);

  // Takes the next token and returns the text that is certain now, often that of one token. Returns
  // "" once a stop string was found.
  std::string Push(TokenId token);

  // Takes a token that adds nothing to the text, such as the one that ends it.
  void Skip();

  // Returns what was held back. Nothing may follow.
  std::string Finish();

  // Where the texts of the last tokens begin, in characters of the whole text: of those whose place
  // has become certain and was not taken before. A token that is part of a character begins where
  // that character does, or what stands for it; it waits, and those behind it, until that is known.
  // When text was returned, none waits.
  std::vector<int64_t> TakeOffsets() { return std::exchange(offsets_, {}); }

  // The stop string that ended the text.
  const std::optional<std::string>& matched_stop() const { return matched_stop_; }

 private:
  std::string TakeCertain();
  void Place(TokenId token, bool was_at_start, bool grew);
  void Settle(std::string_view became);

  const Tokenizer& tokenizer_;
  DetokenizerOptions options_;
  DecodeState state_;
  std::string held_;  // complete text that has not been returned
  int64_t num_tokens_ = 0;
  int64_t num_characters_ = 0;  // of the text so far, with those that are held back
  std::string pending_;         // for offsets: state_.incomplete
  // Of the last tokens, whose place is not certain: where in pending_ each begins.
  std::vector<size_t> waiting_;
  std::vector<int64_t> offsets_;  // that were not taken
  std::optional<std::string> matched_stop_;
};

}  // namespace lamina
