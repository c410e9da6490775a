#include "grammar/vocabulary.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "text/utf8.h"

namespace lamina {
namespace {

constexpr size_t kMaxTokenBytes = std::numeric_limits<uint16_t>::max();

// Special tokens write nothing where they are skipped.
bool WritesText(const Tokenizer& tokenizer, TokenId token) {
  DecodeState state;
  state.at_start = false;
  std::string text;
  tokenizer.Append(state, token, /*skip_special=*/true, text);
  return !text.empty() || !state.incomplete.empty();
}

// Of a subtree whose tokens are looked at one by one.
constexpr int32_t kMaxPlainTokens = 64;

bool IsPlainByte(uint8_t byte) {
  return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\' && byte != 0x7F;
}

// How many characters the text has, if all of them are plain. The last one may lack bytes that are
// still to come.
std::optional<size_t> CountPlain(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) {
    size_t length = 0;
    const Utf8Prefix prefix = ClassifyUtf8(text, &length);
    if (prefix == Utf8Prefix::kIncomplete) return count + 1;
    if (prefix == Utf8Prefix::kInvalid) return std::nullopt;
    if (length == 1 && !IsPlainByte(static_cast<uint8_t>(text.front()))) return std::nullopt;
    text.remove_prefix(length);
  }
  return count;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> bytes) : bytes_(std::move(bytes)) {
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < size(); ++token) {
    const size_t length = bytes_[static_cast<size_t>(token)].size();
    if (length > 0 && length <= kMaxTokenBytes) tokens.push_back(token);
  }
  std::ranges::stable_sort(tokens, {}, [&](TokenId token) { return this->bytes(token); });
  std::vector<TokenId> rest;
  plain_.assign(kMaxPlainCharacters + 1, {std::string(TokenMaskBytes(size()), '\0')});
  for (const TokenId token : tokens) {
    const std::optional<size_t> count = CountPlain(this->bytes(token));
    if (!count || *count > kMaxPlainCharacters) {
      rest.push_back(token);
      continue;
    }
    for (size_t i = *count; i < plain_.size(); ++i) AddToken(token, plain_[i]);
  }
  all_ = TrieOf(std::move(tokens));
  rest_ = TrieOf(std::move(rest));
}

TokenTrie Vocabulary::TrieOf(std::vector<TokenId> sorted) const {
  TokenTrie trie;
  trie.tokens = std::move(sorted);
  trie.nodes.push_back({.last_token = static_cast<int32_t>(trie.tokens.size())});
  trie.bytes.push_back(0);
  std::vector<uint16_t> depths = {0};  // by node: bytes that lead to it
  const auto text = [&](int32_t index) { return bytes(trie.tokens[static_cast<size_t>(index)]); };
  // Nodes whose children are still to be found.
  std::vector<size_t> unvisited = {0};
  while (!unvisited.empty()) {
    const size_t parent = unvisited.back();
    unvisited.pop_back();
    const size_t depth = depths[parent];
    const int32_t last = trie.nodes[parent].last_token;
    const auto first_child = static_cast<int32_t>(trie.nodes.size());
    int32_t t = trie.nodes[parent].first_token;
    // No two tokens are told apart behind their last byte, so those that end here are first.
    while (t < last && text(t).size() == depth) ++t;
    trie.nodes[parent].num_tokens = t - trie.nodes[parent].first_token;
    while (t < last) {
      const char byte = text(t)[depth];
      const int32_t first = t;
      while (t < last && text(t)[depth] == byte) ++t;
      trie.nodes.push_back({.first_token = first, .last_token = t});
      trie.bytes.push_back(static_cast<uint8_t>(byte));
      depths.push_back(static_cast<uint16_t>(depth + 1));
    }
    trie.nodes[parent].first_child = first_child;
    trie.nodes[parent].num_children = static_cast<int32_t>(trie.nodes.size()) - first_child;
    for (size_t child = trie.nodes.size(); child-- > static_cast<size_t>(first_child);)
      unvisited.push_back(child);
  }
  FindPlain(trie, depths);
  return trie;
}

void Vocabulary::FindPlain(TokenTrie& trie, std::span<const uint16_t> depths) const {
  constexpr uint8_t kNotPlain = TokenTrie::kNotPlain;
  for (size_t i = trie.nodes.size(); i-- > 0;) {
    TokenTrie::Node& node = trie.nodes[i];
    size_t most = 0;
    bool plain = true;
    // Children come before their parent here, but a character may be a chain of nodes: each token
    // is looked at from the node on.
    if (node.last_token - node.first_token > kMaxPlainTokens) {
      // Too many to look at one by one: the children say it, where they are whole characters.
      for (int32_t k = 0; k < node.num_children && plain; ++k) {
        const auto child = static_cast<size_t>(node.first_child + k);
        plain = IsPlainByte(trie.bytes[child]) && trie.nodes[child].plain != kNotPlain;
        most = std::max<size_t>(most, trie.nodes[child].plain + size_t{1});
      }
    } else {
      for (int32_t t = node.first_token; t < node.last_token && plain; ++t) {
        const std::string_view rest = bytes(trie.tokens[static_cast<size_t>(t)]).substr(depths[i]);
        const std::optional<size_t> count = CountPlain(rest);
        plain = count.has_value();
        most = std::max(most, count.value_or(0));
      }
    }
    node.plain = plain && most < kNotPlain ? static_cast<uint8_t>(most) : kNotPlain;
  }
}

std::shared_ptr<const Vocabulary> Vocabulary::Of(const Tokenizer& tokenizer, int64_t vocab_size) {
  std::vector<std::string> bytes(static_cast<size_t>(vocab_size));
  const int64_t known = std::min(vocab_size, tokenizer.vocab_size());
  for (TokenId token = 0; token < known; ++token) {
    if (WritesText(tokenizer, token))
      bytes[static_cast<size_t>(token)] = tokenizer.TokenBytes(token);
  }
  return std::make_shared<const Vocabulary>(std::move(bytes));
}

}  // namespace lamina
