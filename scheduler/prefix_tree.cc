#include "scheduler/prefix_tree.h"

#include <algorithm>
#include <utility>

namespace lamina {

// The members alone would destroy a long chain of edges recursively and could overflow the stack;
// Evict removes leaves first.
PrefixTree::~PrefixTree() {
  Evict(num_tokens_, [](TokenSlot) { return false; });
}

PrefixTree::Edge* PrefixTree::Child(const Edge& edge, std::span<const TokenId> tokens) {
  if (tokens.empty()) return nullptr;
  const auto found = edge.children.find(tokens.front());
  return found == edge.children.end() ? nullptr : found->second.get();
}

int64_t PrefixTree::Common(const Edge& edge, std::span<const TokenId> tokens) {
  return std::ranges::mismatch(edge.tokens, tokens).in1 - edge.tokens.begin();
}

int64_t PrefixTree::Length(std::span<const TokenId> tokens) const {
  int64_t length = 0;
  for (const Edge* edge = &root_;
       (edge = Child(*edge, tokens.subspan(static_cast<size_t>(length)))) != nullptr;) {
    const int64_t common = Common(*edge, tokens.subspan(static_cast<size_t>(length)));
    length += common;
    if (common < std::ssize(edge->tokens)) break;
  }
  return length;
}

PrefixTree::Edge* PrefixTree::Walk(std::span<const TokenId>& tokens) {
  ++now_;
  Edge* at = &root_;
  while (Edge* const edge = Child(*at, tokens)) {
    const int64_t common = Common(*edge, tokens);
    if (common < std::ssize(edge->tokens)) Cut(*edge, common);
    edge->used = now_;
    tokens = tokens.subspan(static_cast<size_t>(common));
    at = edge;
  }
  return at;
}

void PrefixTree::Cut(Edge& edge, int64_t length) {
  auto rest = std::make_unique<Edge>();
  rest->tokens.assign(edge.tokens.begin() + length, edge.tokens.end());
  rest->slots.assign(edge.slots.begin() + length, edge.slots.end());
  rest->parent = &edge;
  rest->children = std::exchange(edge.children, {});
  for (auto& [token, child] : rest->children) child->parent = rest.get();
  rest->used = edge.used;  // cutting does not count as a use
  edge.tokens.resize(static_cast<size_t>(length));
  edge.slots.resize(static_cast<size_t>(length));
  edge.children.emplace(rest->tokens.front(), std::move(rest));
}

std::vector<TokenSlot> PrefixTree::Take(std::span<const TokenId> tokens) {
  std::vector<const Edge*> path;
  for (const Edge* edge = Walk(tokens); edge != &root_; edge = edge->parent) path.push_back(edge);
  std::vector<TokenSlot> slots;
  for (auto edge = path.rbegin(); edge != path.rend(); ++edge)
    slots.insert(slots.end(), (*edge)->slots.begin(), (*edge)->slots.end());
  return slots;
}

std::span<const TokenSlot> PrefixTree::Insert(std::span<const TokenId> tokens,
                                              std::span<const TokenSlot> slots) {
  Edge* const parent = Walk(tokens);
  const std::span<const TokenSlot> learned = slots.last(tokens.size());
  if (tokens.empty()) return learned;
  auto edge = std::make_unique<Edge>();
  edge->tokens.assign(tokens.begin(), tokens.end());
  edge->slots.assign(learned.begin(), learned.end());
  edge->parent = parent;
  edge->used = now_;
  parent->children.emplace(tokens.front(), std::move(edge));
  num_tokens_ += std::ssize(tokens);
  return learned;
}

std::vector<TokenSlot> PrefixTree::Withdraw(std::span<const TokenId> tokens,
                                            std::span<const TokenSlot> slots) {
  std::vector<TokenSlot> forgotten;
  for (Edge* edge = Child(root_, tokens); edge != nullptr; edge = Child(*edge, tokens)) {
    const int64_t common = Common(*edge, tokens);
    // Tokens at the edge's begin whose slots the tree has from another sequence.
    int64_t others = 0;
    while (others < common &&
           edge->slots[static_cast<size_t>(others)] != slots[static_cast<size_t>(others)])
      ++others;
    if (others < common) {
      if (others > 0) Cut(*edge, others);
      Forget(others > 0 ? *edge->children.begin()->second : *edge, forgotten);
      break;
    }
    if (common < std::ssize(edge->tokens)) break;
    tokens = tokens.subspan(static_cast<size_t>(common));
    slots = slots.subspan(static_cast<size_t>(common));
  }
  return forgotten;
}

std::vector<PrefixTree::Edge*> PrefixTree::Edges() {
  std::vector<Edge*> edges = {&root_};
  for (size_t i = 0; i < edges.size(); ++i) {
    for (auto& [token, child] : edges[i]->children) edges.push_back(child.get());
  }
  edges.erase(edges.begin());
  return edges;
}

void PrefixTree::Forget(Edge& edge, std::vector<TokenSlot>& slots) {
  // Without recursion, since chains can be long: goes down to a leaf, removes it, and goes on with
  // its parent, until `edge` itself is removed.
  const Edge* const before = edge.parent;
  for (Edge *at = &edge, *parent = nullptr; parent != before; at = parent) {
    while (!at->children.empty()) at = at->children.begin()->second.get();
    slots.insert(slots.end(), at->slots.begin(), at->slots.end());
    num_tokens_ -= std::ssize(at->slots);
    parent = at->parent;
    // A copy of the key, which erase() destroys together with `at`.
    parent->children.erase(TokenId{at->tokens.front()});
  }
}

std::vector<TokenSlot> PrefixTree::Evict(int64_t num_tokens,
                                         const std::function<bool(TokenSlot)>& in_use) {
  // One slot speaks for the whole edge: all of its slots are in use or none.
  const auto idle = [&](const Edge* edge) { return !in_use(edge->slots.front()); };
  const auto used_later = [](const Edge* a, const Edge* b) { return a->used > b->used; };
  std::vector<TokenSlot> slots;
  std::vector<Edge*> leaves = Edges();  // a heap, the least recently used on top
  std::erase_if(leaves, [&](const Edge* edge) { return !edge->children.empty() || !idle(edge); });
  std::ranges::make_heap(leaves, used_later);
  while (std::ssize(slots) < num_tokens && !leaves.empty()) {
    std::ranges::pop_heap(leaves, used_later);
    Edge* const leaf = leaves.back();
    leaves.pop_back();
    const int64_t kept = std::ssize(leaf->slots) - (num_tokens - std::ssize(slots));
    // The leaf has more than is needed: its beginning stays.
    if (kept > 0) {
      Cut(*leaf, kept);
      Forget(*leaf->children.begin()->second, slots);
      return slots;
    }
    Edge* const parent = leaf->parent;
    Forget(*leaf, slots);
    if (parent == &root_ || !parent->children.empty() || !idle(parent)) continue;
    leaves.push_back(parent);  // it has become a leaf
    std::ranges::push_heap(leaves, used_later);
  }
  // No idle leaf is left, but there may be idle edges that edges in use follow.
  for (int64_t missing = num_tokens - std::ssize(slots); missing > 0;) {
    std::vector<Edge*> edges = Edges();
    const auto edge = std::ranges::find_if(edges, idle);
    if (edge == edges.end()) break;
    const auto before = std::ssize(slots);
    Forget(**edge, slots);
    missing -= std::count_if(slots.begin() + before, slots.end(),
                             [&](TokenSlot slot) { return !in_use(slot); });
  }
  return slots;
}

}  // namespace lamina
