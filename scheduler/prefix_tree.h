// Which token slots of one node hold K and V of which text: a radix tree over tokens, so that a
// sequence that begins as an earlier one did need not compute that part again. (RadixAttention:
// Zheng et al., SGLang, 2024.) Only numbers live here; who owns the slots is kv_pool.h's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace lamina {

// Every edge is a run of tokens and the slots of their K and V. K and V of a token depend on all
// tokens before it, so what is found is always a beginning. Calls are O(tokens in the call), Evict
// also looks at all edges.
class PrefixTree {
 public:
  PrefixTree() = default;
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  int64_t num_tokens() const { return num_tokens_; }

  // How many of the first `tokens` are there.
  int64_t Length(std::span<const TokenId> tokens) const;

  // Their slots. They count as used now: what was used longest ago is evicted first. The edge that
  // holds the last one is cut behind it.
  std::vector<TokenSlot> Take(std::span<const TokenId> tokens);

  // Learns that slots[i] holds K and V of tokens[i] behind those before it. Returns the slots that
  // the tree has learned: a rest of `slots`, behind the tokens that were there before, whose slots
  // stay. REQUIRES: as many slots as tokens.
  std::span<const TokenSlot> Insert(std::span<const TokenId> tokens,
                                    std::span<const TokenSlot> slots);

  // Forgets every token whose slot is slots[i] for tokens[i], with all that follows it, in use or
  // not, and returns the slots that were forgotten. REQUIRES: as many slots as tokens.
  std::vector<TokenSlot> Withdraw(std::span<const TokenId> tokens,
                                  std::span<const TokenSlot> slots);

  // Forgets tokens until `num_tokens` slots that are not in use are forgotten, or all such, and
  // returns what was forgotten. First edges that no other follows, those that were used longest ago
  // before the others; then any that are not in use, with all that follows, though some of that may
  // be in use (by a sequence that has the tokens before it in other slots). REQUIRES: the slots of
  // an edge are in use all or none.
  std::vector<TokenSlot> Evict(int64_t num_tokens, const std::function<bool(TokenSlot)>& in_use);

 private:
  struct Edge {
    std::vector<TokenId> tokens;  // none at the root
    std::vector<TokenSlot> slots;
    Edge* parent = nullptr;
    std::map<TokenId, std::unique_ptr<Edge>> children;  // by first token
    uint64_t used = 0;                                  // when it was last
  };

  static Edge* Child(const Edge& edge, std::span<const TokenId> tokens);
  static int64_t Common(const Edge& edge, std::span<const TokenId> tokens);
  // As far as it goes, cut there; drops what was walked from `tokens`.
  Edge* Walk(std::span<const TokenId>& tokens);
  static void Cut(Edge& edge, int64_t length);             // what is behind becomes its only child
  std::vector<Edge*> Edges();                              // every one before those that follow it
  void Forget(Edge& edge, std::vector<TokenSlot>& slots);  // and what follows; appends its slots

  Edge root_;
  int64_t num_tokens_ = 0;
  uint64_t now_ = 0;
};

}  // namespace lamina
