#include "scheduler/kv_pool.h"

#include <algorithm>
#include <numeric>

#include "scheduler/scheduler.h"

namespace lamina {
namespace {

// An eviction looks at the whole tree, so at least this part of the capacity (1 / 128) is evicted
// at a time.
constexpr int64_t kEvictedShare = 128;

// [begin, end)
std::vector<TokenSlot> SlotsFrom(int64_t begin, int64_t end) {
  std::vector<TokenSlot> slots(static_cast<size_t>(end - begin));
  std::iota(slots.begin(), slots.end(), static_cast<TokenSlot>(begin));
  return slots;
}

}  // namespace

KvPool::KvPool(const KvNode& node)
    : id_(node.id),
      least_(node.capacity_tokens),
      capacity_(node.capacity_tokens),
      allocator_(std::max(node.capacity_tokens, node.most_tokens)) {
  allocator_.Occupy(SlotsFrom(capacity_, allocator_.capacity()));
}

void KvPool::SetCapacity(int64_t tokens) {
  if (tokens > capacity_) allocator_.Release(SlotsFrom(capacity_, tokens));
  if (tokens < capacity_) {
    Evict(prefixes_.num_tokens());
    allocator_.Occupy(SlotsFrom(tokens, capacity_));
  }
  capacity_ = tokens;
}

bool KvPool::is_over_capacity() const {
  for (int64_t slot = capacity_; slot < allocator_.capacity(); ++slot)
    if (allocator_.num_refs(static_cast<TokenSlot>(slot)) > 1) return true;
  return false;
}

bool KvPool::Allocate(int64_t num_slots, std::vector<TokenSlot>& slots) {
  if (num_slots > num_free()) return false;
  if (num_slots > allocator_.num_free())
    Evict(std::max(num_slots - allocator_.num_free(), capacity() / kEvictedShare));
  const size_t before = slots.size();
  if (!allocator_.Allocate(num_slots, slots)) return false;
  for (const TokenSlot slot : std::span(slots).subspan(before)) {
    // Doubled, since a resize to the next slot may copy the vector each time.
    if (slot >= uses_.size())
      uses_.resize(std::max<size_t>(size_t{slot} + 1, 2 * uses_.size()), Use::kOwners);
    use(slot) = Use::kOwners;
  }
  return true;
}

void KvPool::Occupy(std::span<const TokenSlot> slots) {
  allocator_.Occupy(slots);
  for (const TokenSlot slot : slots) {
    if (slot >= uses_.size())
      uses_.resize(std::max<size_t>(size_t{slot} + 1, 2 * uses_.size()), Use::kOwners);
  }
}

void KvPool::Release(std::span<const TokenSlot> slots) {
  allocator_.Release(slots);
  // The one reference that is left is the tree's.
  num_idle_ += std::ranges::count_if(slots, [&](TokenSlot slot) {
    return use(slot) == Use::kKept && allocator_.num_refs(slot) == 1;
  });
}

std::vector<TokenSlot> KvPool::Share(std::span<const TokenId> tokens) {
  std::vector<TokenSlot> slots = prefixes_.Take(tokens);
  // Counted before AddRef: a slot that only the tree owns was idle until now.
  num_idle_ -=
      std::ranges::count_if(slots, [&](TokenSlot slot) { return allocator_.num_refs(slot) == 1; });
  allocator_.AddRef(slots);
  return slots;
}

void KvPool::Keep(std::span<const TokenId> tokens, std::span<const TokenSlot> slots) {
  const auto withdrawn =
      std::ranges::find_if(slots, [&](TokenSlot slot) { return use(slot) == Use::kWithdrawn; });
  const auto num = static_cast<size_t>(withdrawn - slots.begin());
  // An edge of the tree has the same owners from its first slot to its last, or it could not be
  // evicted as a whole. Who shares slots that the tree did not know yet has cut no edge.
  std::vector<size_t> ends;
  for (size_t i = 1; i < num; ++i) {
    if (allocator_.num_refs(slots[i]) != allocator_.num_refs(slots[i - 1])) ends.push_back(i);
  }
  if (num > 0) ends.push_back(num);
  for (const size_t end : ends) {
    const std::span<const TokenSlot> learned =
        prefixes_.Insert(tokens.first(end), slots.first(end));
    allocator_.AddRef(learned);
    for (const TokenSlot slot : learned) use(slot) = Use::kKept;
  }
}

void KvPool::Withdraw(std::span<const TokenId> tokens, std::span<const TokenSlot> slots) {
  ReleaseForgotten(prefixes_.Withdraw(tokens, slots));
  for (const TokenSlot slot : slots) use(slot) = Use::kWithdrawn;
}

void KvPool::Evict(int64_t num_slots) {
  ReleaseForgotten(
      prefixes_.Evict(num_slots, [&](TokenSlot slot) { return allocator_.num_refs(slot) > 1; }));
}

void KvPool::ReleaseForgotten(std::span<const TokenSlot> slots) {
  for (const TokenSlot slot : slots) {
    use(slot) = Use::kOwners;
    if (allocator_.num_refs(slot) == 1) --num_idle_;
  }
  allocator_.Release(slots);
}

void KvPool::DropPrefixes() { Evict(prefixes_.num_tokens()); }

}  // namespace lamina
