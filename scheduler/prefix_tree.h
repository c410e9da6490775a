// A radix tree over tokens that says which token slots of one node hold K and V of which text, so
// that a sequence with the same prefix as an earlier one need not compute that part again.
// (RadixAttention: Zheng et al., SGLang, 2024.) The tree keeps slot numbers only; kv_pool.h keeps
// track of who owns the slots.
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
// tokens before it, so only prefixes of a text can be found, never its middle. Calls take time
// linear in their tokens and in the length of an edge that they cut; Evict also looks at all edges.
// Thread: owner.
class PrefixTree {
 public:
  PrefixTree() = default;
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  int64_t num_tokens() const { return num_tokens_; }

  // How many of the first `tokens` are in the tree.
  int64_t Length(std::span<const TokenId> tokens) const;

  // Returns the slots of the first Length(tokens) tokens, which count as used now (what was used
  // longest ago is evicted first). Cuts the last edge behind the last of these tokens.
  std::vector<TokenSlot> Take(std::span<const TokenId> tokens);

  // Inserts the text `tokens`, where slots[i] holds K and V of tokens[i] behind those before it.
  // Tokens that are in the tree already keep their slots there. Returns the slots that are new in
  // the tree, which are the last ones of `slots`. REQUIRES: as many slots as tokens.
  std::span<const TokenSlot> Insert(std::span<const TokenId> tokens,
                                    std::span<const TokenSlot> slots);

  // Looks in the tree for the first of `tokens` that has slots[i] as its slot there, forgets it
  // with everything that follows it, in use or not, and returns the slots that were forgotten.
  // REQUIRES: as many slots as tokens.
  std::vector<TokenSlot> Withdraw(std::span<const TokenId> tokens,
                                  std::span<const TokenSlot> slots);

  // Forgets tokens until `num_tokens` slots that are not in use are forgotten, or all such slots,
  // and returns what was forgotten. Leaves go first, the least recently used before the others. If
  // these do not suffice, inner edges that are not in use go with all that follows them, although
  // some of that may be in use (by a sequence that has the tokens before it in other slots).
  // REQUIRES: of the slots of one edge, all are in use or none.
  std::vector<TokenSlot> Evict(int64_t num_tokens, const std::function<bool(TokenSlot)>& in_use);

 private:
  struct Edge {
    std::vector<TokenId> tokens;  // none at the root
    std::vector<TokenSlot> slots;
    Edge* parent = nullptr;
    std::map<TokenId, std::unique_ptr<Edge>> children;  // by first token
    uint64_t used = 0;                                  // value of now_ at its last use
  };

  // The child of `edge` that begins with the first of `tokens`; nullptr if there is none.
  static Edge* Child(const Edge& edge, std::span<const TokenId> tokens);
  // How many of the first `tokens` are the first tokens of `edge`.
  static int64_t Common(const Edge& edge, std::span<const TokenId> tokens);
  // Follows `tokens` from the root as far as they are in the tree and cuts the last edge there,
  // marks all edges on the way as used now, removes the followed tokens from `tokens`, and returns
  // the last edge.
  Edge* Walk(std::span<const TokenId>& tokens);
  // Cuts the edge behind `length` tokens; the rest becomes its only child.
  static void Cut(Edge& edge, int64_t length);
  std::vector<Edge*> Edges();  // all but the root, parents before their children
  // Removes the edge and everything that follows it from the tree; appends their slots to `slots`.
  void Forget(Edge& edge, std::vector<TokenSlot>& slots);

  Edge root_;
  int64_t num_tokens_ = 0;
  uint64_t now_ = 0;  // counts walks
};

}  // namespace lamina
