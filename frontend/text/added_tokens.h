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

namespace lamina {

struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;   // looked for in normalised text
  bool single_word = false;  // not beside word characters
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
};

// Finds tokens: the leftmost first, of those the longest. Thread: any; immutable after the last Add.
class AddedTokenFinder {
 public:
  // `text`: how it stands in the text that will be searched. Ignored if empty.
  void Add(const AddedToken& token, std::string_view text);

  // Calls visit(piece, nullopt) for text between tokens, never empty, and visit(piece, id) for tokens. The pieces make up the text.
  using Visit = std::function<void(std::string_view piece, std::optional<TokenId> id)>;
  void Divide(std::string_view text, const Visit& visit) const;

 private:
  // The longest token at the beginning of `text`; null: none.
  const AddedToken* Match(std::string_view text, size_t* length) const;

  static uint64_t Edge(uint32_t node, char c) { return uint64_t{node} << 8 | static_cast<unsigned char>(c); }

  std::vector<AddedToken> tokens_;
  std::unordered_map<uint64_t, uint32_t> edges_;   // a trie; node 0 is its root
  std::unordered_map<uint32_t, size_t> token_at_;  // nodes where tokens end
  uint32_t num_nodes_ = 1;
  std::string first_bytes_;
};

}  // namespace lamina
