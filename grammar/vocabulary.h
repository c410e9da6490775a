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

// Tokens sorted by their bytes, and the trie of these. The children of a node stand side by side,
// so that those which a state takes are found in a few bytes of memory.
struct TokenTrie {
  struct Node {
    int32_t first_child = 0, num_children = 0;  // of `nodes`, by their bytes
    // Of `tokens`: those that begin with what leads to this node are [first_token, last_token), and
    // the first `num_tokens` of them end here.
    int32_t first_token = 0, last_token = 0;
    int32_t num_tokens = 0;
    // What the tokens behind this node add is a number of plain characters, at most so many;
    // kNotPlain if it is not. Plain are well-formed characters but controls, '"' and '\\'. The last
    // one may be the beginning of a character, which counts as one.
    uint8_t plain = 0;
  };
  static constexpr uint8_t kNotPlain = 255;

  std::vector<Node> nodes;     // the root first
  std::vector<uint8_t> bytes;  // by node: what leads to it from its parent
  std::vector<TokenId> tokens;
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
  void FindPlain(TokenTrie& trie, std::span<const uint16_t> depths) const;

  std::vector<std::string> bytes_;
  TokenTrie all_, rest_;
  std::vector<TokenMask> plain_;
};

}  // namespace lamina
