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

// How many characters the text has, if all of them are plain.
std::optional<size_t> CountPlain(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) {
    size_t length = 0;
    if (ClassifyUtf8(text, &length) != Utf8Prefix::kComplete) return std::nullopt;
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
  std::vector<TokenTrie::Node>& nodes = trie.nodes;
  std::vector<int32_t> path;  // nodes that lead to the last token
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes[static_cast<size_t>(path.back())].behind = static_cast<int32_t>(nodes.size());
  };
  for (int32_t i = 0; i < std::ssize(trie.tokens); ++i) {
    const std::string_view text = bytes(trie.tokens[static_cast<size_t>(i)]);
    const auto common = static_cast<size_t>(std::ranges::mismatch(last, text).in1 - last.begin());
    close(common);
    while (path.size() < text.size()) {
      path.push_back(static_cast<int32_t>(nodes.size()));
      nodes.push_back({static_cast<uint8_t>(text[path.size() - 1]),
                       static_cast<uint16_t>(path.size()), 0, i, 0});
    }
    ++nodes[static_cast<size_t>(path.back())].num_tokens;
    trie.max_depth = std::max(trie.max_depth, static_cast<int>(text.size()));
    last = text;
  }
  close(0);
  FindPlain(trie);
  return trie;
}

void Vocabulary::FindPlain(TokenTrie& trie) const {
  constexpr uint8_t kNotPlain = TokenTrie::kNotPlain;
  for (size_t i = trie.nodes.size(); i-- > 0;) {
    TokenTrie::Node& node = trie.nodes[i];
    size_t most = 0;
    // Children come before their parent here, but a character may be a chain of nodes: each token
    // is looked at from the node on.
    const int32_t last = trie.tokens_end(node);
    bool plain = true;
    if (last - node.first_token > kMaxPlainTokens) {
      // Too many to look at one by one: the children say it, where they are whole characters.
      for (int32_t child = static_cast<int32_t>(i) + 1; child < node.behind && plain;
           child = trie.nodes[static_cast<size_t>(child)].behind) {
        const TokenTrie::Node& below = trie.nodes[static_cast<size_t>(child)];
        plain = IsPlainByte(below.byte) && below.plain != kNotPlain;
        most = std::max<size_t>(most, below.plain + size_t{1});
      }
    } else {
      for (int32_t t = node.first_token; t < last && plain; ++t) {
        const std::string_view rest = bytes(trie.tokens[static_cast<size_t>(t)]).substr(node.depth);
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
