// The bytes of a tokenizer's tokens, as tries: an automaton is held against all tokens at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/token_mask.h"
#include "text/tokenizer.h"

namespace lamina {

// Tokens sorted by their bytes, and the trie of these.
struct TokenTrie {
  // A node: what leads to it from its parent, and how far its descendants go. Nodes stand in the
  // order in which a walk from the root meets them.
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;       // 1: the first byte of a token
    int32_t behind = 0;       // the next node that is no descendant
    int32_t first_token = 0;  // of `tokens`: those from here to `behind` follow each other
    int32_t num_tokens = 0;   // that end here
    // What the tokens behind this node add is a number of plain characters, at most so many;
    // kNotPlain if it is not. Plain are well-formed characters but controls, '"' and '\\'.
    uint8_t plain = 0;
  };
  static constexpr uint8_t kNotPlain = 255;

  std::vector<Node> nodes;
  std::vector<TokenId> tokens;
  int max_depth = 0;

  // Index of the first of `tokens` that does not begin with what leads to the node.
  int32_t tokens_end(const Node& node) const {
    return node.behind < std::ssize(nodes) ? nodes[static_cast<size_t>(node.behind)].first_token
                                           : static_cast<int32_t>(tokens.size());
  }
};

// Thread: any; immutable.
class Vocabulary {
 public:
  // Tokens of more plain characters are looked at one by one.
  static constexpr int kMaxPlainCharacters = 16;

  // `bytes`, by token id; tokens without bytes, such as special ones, are in no text. Bytes of a
  // token behind the 65535-th make it none that is used.
  explicit Vocabulary(std::vector<std::string> bytes);

  // Of the tokens that a model of `vocab_size` can choose, those that write text.
  static std::shared_ptr<const Vocabulary> Of(const Tokenizer& tokenizer, int64_t vocab_size);

  int64_t size() const { return std::ssize(bytes_); }
  std::string_view bytes(TokenId token) const { return bytes_[static_cast<size_t>(token)]; }
  // All tokens; and those that are in no mask of plain().
  const TokenTrie& all() const { return all_; }
  const TokenTrie& rest() const { return rest_; }
  // The tokens of 1 to `characters` characters that are all plain. In strings these are nearly all
  // that may follow, so they are known before. REQUIRES: 0 <= characters <= kMaxPlainCharacters.
  const TokenMask& plain(int characters) const { return plain_[static_cast<size_t>(characters)]; }

 private:
  TokenTrie TrieOf(std::vector<TokenId> sorted) const;
  void FindPlain(TokenTrie& trie) const;

  std::vector<std::string> bytes_;
  TokenTrie all_, rest_;
  std::vector<TokenMask> plain_;
};

}  // namespace lamina
