#include "scheduler/kv_pool.h"

#include <algorithm>

namespace lamina {
namespace {

// Looking for what to evict takes a look at the whole tree, so this part of the slots is evicted at a time.
constexpr int64_t kEvictedShare = 128;

}  // namespace

bool KvPool::Allocate(int64_t num_slots, std::vector<TokenSlot>& slots) {
  if (num_slots > num_free()) return false;
  if (num_slots > allocator_.num_free()) Evict(std::max(num_slots - allocator_.num_free(), capacity() / kEvictedShare));
  return allocator_.Allocate(num_slots, slots);
}

// The last owner of a slot that had several is the tree: sequences share only what they found in it, and what is shared stays there, as
// all that stands before it is in use too.
void KvPool::Release(std::span<const TokenSlot> slots) {
  allocator_.Release(slots);
  num_idle_ += std::ranges::count_if(slots, [&](TokenSlot slot) { return allocator_.num_refs(slot) == 1; });
}

std::vector<TokenSlot> KvPool::Share(std::span<const TokenId> tokens) {
  std::vector<TokenSlot> slots = prefixes_.Take(tokens);
  num_idle_ -= std::ranges::count_if(slots, [&](TokenSlot slot) { return allocator_.num_refs(slot) == 1; });
  allocator_.AddRef(slots);
  return slots;
}

void KvPool::Keep(std::span<const TokenId> tokens, std::span<const TokenSlot> slots) { allocator_.AddRef(prefixes_.Insert(tokens, slots)); }

void KvPool::Evict(int64_t num_slots) {
  const auto in_use = [&](TokenSlot slot) { return allocator_.num_refs(slot) > 1; };
  const std::vector<TokenSlot> evicted = prefixes_.Evict(num_slots, in_use);
  num_idle_ -= std::ssize(evicted) - std::ranges::count_if(evicted, in_use);
  allocator_.Release(evicted);
}

void KvPool::DropPrefixes() { Evict(prefixes_.num_tokens()); }

}  // namespace lamina
