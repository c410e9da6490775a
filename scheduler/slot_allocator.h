// Hands out the token slots of one node's slab. Only numbers live here; the node stores what stands in them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace lamina {

// A LIFO free list with reference counts: the slot freed last is handed out first, so that the memory which a small load touches stays
// small. Slots that were never used come in ascending order, and a list of slots given back in one call is handed out again in its order: a
// prefill's slots are one run wherever the free list allows it, and attention then reads them as one block.
//
// Every call is O(slots in the call); memory grows with the highest slot ever used, not with the capacity.
class SlotAllocator {
 public:
  // Slots are [0, capacity_tokens). REQUIRES: 0 <= capacity_tokens <= 2^32 (TokenSlot's range).
  explicit SlotAllocator(int64_t capacity_tokens);

  // Appends `num_slots` free slots to `slots`, each with one reference. All or nothing: false, and nothing changes, if fewer are free.
  [[nodiscard]] bool Allocate(int64_t num_slots, std::vector<TokenSlot>& slots);

  // One more owner for each slot: a fork reads the same tokens. REQUIRES: every slot is in use.
  void AddRef(std::span<const TokenSlot> slots);

  // One owner fewer for each slot; those without an owner are free again. REQUIRES: every slot is in use (aborts otherwise: a slot that is
  // freed twice would get two tokens, and wrong attention is worse than a crash).
  void Release(std::span<const TokenSlot> slots);

  int64_t capacity() const { return capacity_; }
  int64_t num_used() const { return num_used_; }  // slots, whatever the number of their owners
  int64_t num_free() const { return capacity_ - num_used_; }
  int num_refs(TokenSlot slot) const { return slot < refs_.size() ? static_cast<int>(refs_[slot]) : 0; }

 private:
  int64_t capacity_;
  int64_t num_used_ = 0;
  std::vector<uint32_t> refs_;   // owners of each slot that was ever used; slots from refs_.size() on are fresh
  std::vector<TokenSlot> free_;  // used before and free now; the last one is next
};

}  // namespace lamina
