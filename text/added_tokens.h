// Tokens that are looked for in text before anything else: the "added_tokens" of a tokenizer.json.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/time_budget.h"

namespace lamina {

inline constexpr size_t kMaxAddedTokenBytes = 1 << 10;  // the longest in use have about 100
// All of a tokenizer; those in use have less than 200 KiB.
inline constexpr size_t kMaxAddedTokensBytes = 2 << 20;
inline constexpr size_t kMaxAddedTokens = 1 << 17;  // in use are up to about 30,000

struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;   // looked for in normalised text
  bool single_word = false;  // not beside word characters
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
};

// Finds tokens: the leftmost first, of those the longest. Thread: any; immutable after the last
// Add.
class AddedTokenFinder {
 public:
  // Adds a token that is spelled `text` where it will be searched; an empty one is ignored.
  // REQUIRES: all of them have less than 4 GiB.
  void Add(const AddedToken& token, std::string_view text);

  // Returns the longest token at the beginning of `text` and its length, or null if there is none.
  // `*looked` is how many bytes were looked at.
  const AddedToken* Match(std::string_view text, size_t* length, size_t* looked) const;

  // Calls visit(piece, nullopt) for text between tokens, never empty, and visit(piece, id) for
  // tokens, until one fails. The pieces make up the text. Takes time in proportion to the text's
  // length times the tokens', at worst. Returns the first error of `visit` or of the budget.
  using Visit = std::function<Status(std::string_view piece, std::optional<TokenId> id)>;
  Status Divide(std::string_view text, const TimeBudget& budget, const Visit& visit) const;

 private:
  static uint64_t Edge(uint32_t node, char c) {
    return uint64_t{node} << 8 | static_cast<unsigned char>(c);
  }

  std::vector<AddedToken> tokens_;
  std::unordered_map<uint64_t, uint32_t> edges_;   // a trie; node 0 is its root
  std::unordered_map<uint32_t, size_t> token_at_;  // nodes where tokens end
  uint32_t num_nodes_ = 1;
  std::string first_bytes_;
};

}  // namespace lamina
