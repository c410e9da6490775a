// Hands out the token slots of one node's slab. Only numbers live here; the node stores what stands
// in them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace lamina {

// Token slots with reference counts, handed out so that a sequence's slots are few long runs and
// attention reads them as streams: slots in random order are read at half the rate of a stream or
// less. (A plain LIFO free list ends in random order.)
//
// A sequence goes on behind its last slot wherever that is free. Else it gets blocks of 16 slots
// that are free as a whole, from the shortest run of such blocks that has room for it and for a
// tenth of its length more, or from the longest there is. Only what it needs is taken; the rest of
// its last block is left to it as long as others find whole blocks. When there are none, others get
// what is free in the emptiest. Among equals the lowest slot comes first, so that the memory which
// a small load touches stays small.
//
// After 10,000 random arrivals and departures at 90 % occupancy a run has 55, 180 or 330 slots if
// sequences have 120, 1,000 or 3,600 (bench/ kv_churn.h). Blocks of 64 make longer runs of long
// sequences (300, 700), but of short ones, whose last blocks are most of the free slots then, next
// to none (4).
//
// Every call is O(slots in the call), and a logarithm of the number of free runs for each block;
// memory grows with the highest slot ever used, not with the capacity.
class SlotAllocator {
 public:
  // Slots are [0, capacity_tokens). REQUIRES: 0 <= capacity_tokens <= 2^32 (TokenSlot's range).
  explicit SlotAllocator(int64_t capacity_tokens);

  // Appends `num_slots` free slots to `slots`, those of the sequence so far, each with one
  // reference. All or nothing: false, and nothing changes, if fewer are free.
  [[nodiscard]] bool Allocate(int64_t num_slots, std::vector<TokenSlot>& slots);

  // One more owner for each slot: a fork reads the same tokens. REQUIRES: every slot is in use.
  void AddRef(std::span<const TokenSlot> slots);

  // One owner fewer for each slot; those without an owner are free again. REQUIRES: every slot is
  // in use (aborts otherwise: a slot that is freed twice would get two tokens, and wrong attention
  // is worse than a crash).
  void Release(std::span<const TokenSlot> slots);

  int64_t capacity() const { return capacity_; }
  int64_t num_used() const { return num_used_; }  // slots, whatever the number of their owners
  int64_t num_free() const { return capacity_ - num_used_; }
  int num_refs(TokenSlot slot) const {
    return slot < refs_.size() ? static_cast<int>(refs_[slot]) : 0;
  }

 private:
  static constexpr int kBlockSlots = 16;  // bits of a mask

  // A block is whole (all its slots are free: part of a run), full (none is) or partial (in a list
  // of blocks with as many free slots).
  struct Block {
    uint32_t free = 0;              // a bit per slot
    int64_t before = 0, after = 0;  // in its list; kNone at the ends
  };

  bool IsFree(int64_t slot) const;
  uint32_t AllSlots(int64_t block) const;  // the last block may have fewer
  void Touch(int64_t block);
  // Of one block. REQUIRES: they are free.
  void Take(int64_t first, int64_t count, std::vector<TokenSlot>& slots);
  int64_t TakeBehind(int64_t slot, int64_t at_most, std::vector<TokenSlot>& slots);
  int64_t TakeFromRun(int64_t at_most, std::vector<TokenSlot>& slots);
  int64_t TakeFromPartial(int64_t at_most, std::vector<TokenSlot>& slots);
  void SetFree(int64_t block, uint32_t free);
  void AddRun(int64_t begin, int64_t end);
  void RemoveRun(std::map<int64_t, int64_t>::iterator run);
  void AddWhole(int64_t block);
  void RemoveWhole(int64_t block);
  void Link(int64_t block);
  void Unlink(int64_t block);

  int64_t capacity_;
  int64_t num_used_ = 0;
  // Owners of each slot of a block that was ever used.
  std::vector<uint32_t> refs_;
  // Those blocks; the ones from blocks_.size() on are whole.
  std::vector<Block> blocks_;
  // Of whole blocks: first block -> the one after the last. No two touch.
  std::map<int64_t, int64_t> runs_;
  std::set<std::pair<int64_t, int64_t>> run_sizes_;  // the same as (number of blocks, first block)
  // The first block of the list for each number of free slots.
  std::array<int64_t, kBlockSlots> partial_;
};

}  // namespace lamina
