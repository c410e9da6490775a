// The bytes of a tokenizer's tokens, as a trie: an automaton is held against all tokens at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace lamina {

// Thread: any; immutable.
class Vocabulary {
 public:
  // A node of the trie: what leads to it from its parent, and how far its descendants go. Nodes
  // stand in the order in which a walk from the root meets them.
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;       // 1: the first byte of a token
    int32_t behind = 0;       // the next node that is no descendant
    int32_t first_token = 0;  // of tokens(): those from here to `behind` follow each other
    int32_t num_tokens = 0;   // that end here
    // What the tokens behind this node add is a number of plain characters, at most so many;
    // kNotPlain if it is not. Plain are well-formed characters but controls, '"' and '\\'.
    uint8_t plain = 0;
  };
  static constexpr uint8_t kNotPlain = 255;

  // `bytes`, by token id; tokens without bytes, such as special ones, are in no text. Bytes of a
  // token behind the 65535-th make it none that is used.
  explicit Vocabulary(std::vector<std::string> bytes);

  // Of the tokens that a model of `vocab_size` can choose, those that write text.
  static std::shared_ptr<const Vocabulary> Of(const Tokenizer& tokenizer, int64_t vocab_size);

  int64_t size() const { return std::ssize(bytes_); }
  std::string_view bytes(TokenId token) const { return bytes_[static_cast<size_t>(token)]; }
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> tokens() const { return tokens_; }
  int max_depth() const { return max_depth_; }
  // Index of the first of tokens() that does not begin with what leads to the node.
  int32_t tokens_end(const Node& node) const {
    return node.behind < std::ssize(nodes_) ? nodes_[static_cast<size_t>(node.behind)].first_token
                                            : static_cast<int32_t>(tokens_.size());
  }

 private:
  void FindPlain();

  std::vector<std::string> bytes_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  // sorted by their bytes
  int max_depth_ = 0;
};

}  // namespace lamina
