// Hands out the token slots of one node's slab. Only slot numbers are kept here; what the slots
// contain is on the node.
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

// Token slots with reference counts, handed out so that the slots of a sequence form a few long
// runs and attention reads them as streams: slots in random order are read at half the rate of a
// stream or less. (The order of a plain LIFO free list becomes random in time.)
//
// A sequence continues behind its last slot wherever that is free. Otherwise it gets blocks of 16
// slots that are free as a whole: from the shortest run of such blocks that has room for it and for
// a tenth of its length more, else from the longest run. Only what it needs is taken; the rest of
// its last block is left to it as long as others find whole blocks. When there are no whole blocks,
// slots come from the block with the most free ones. Among runs of equal length the lowest is
// taken, so that the memory which a small load touches stays small.
//
// After 10,000 random arrivals and departures at 90 % occupancy the mean run has 55, 180 or 330
// slots if sequences have 120, 1,000 or 3,600 tokens (bench/kernels/kv_churn.h). Blocks of 64 make
// longer runs of long sequences (300, 700), but runs of only 4 slots of short ones, whose last
// blocks then are most of the free slots.
//
// Every call takes time linear in the slots it is about, plus the logarithm of the number of free
// runs for each block. Memory grows with the highest slot ever used, not with the capacity.
//
// Thread: owner.
class SlotAllocator {
 public:
  // Slots are [0, capacity_tokens). REQUIRES: 0 <= capacity_tokens <= 2^32, the range of TokenSlot
  // (aborts otherwise).
  explicit SlotAllocator(int64_t capacity_tokens);

  // Appends `num_slots` free slots, each with one reference, to `slots`, which are the sequence's
  // slots so far. All or nothing: returns false and changes nothing if fewer are free.
  [[nodiscard]] bool Allocate(int64_t num_slots, std::vector<TokenSlot>& slots);

  // Adds one reference to each of these slots, whether they are free or in use. REQUIRES: every
  // slot is below capacity (aborts otherwise).
  void Occupy(std::span<const TokenSlot> slots);

  // Adds one reference to each slot, for another sequence that reads the same tokens. REQUIRES:
  // every slot is in use (aborts otherwise).
  void AddRef(std::span<const TokenSlot> slots);

  // Removes one reference from each slot; a slot without references is free again. REQUIRES: every
  // slot is in use (aborts otherwise: a slot that is freed twice would be given to two tokens, and
  // wrong attention is worse than a crash).
  void Release(std::span<const TokenSlot> slots);

  int64_t capacity() const { return capacity_; }
  int64_t num_used() const { return num_used_; }  // slots, however many references each has
  int64_t num_free() const { return capacity_ - num_used_; }
  int num_refs(TokenSlot slot) const {
    return slot < refs_.size() ? static_cast<int>(refs_[slot]) : 0;
  }

 private:
  static constexpr int kBlockSlots = 16;  // bits of a mask

  // A block is whole (all its slots are free; it is part of a run), full (none is free) or partial
  // (it is in the list of blocks with the same number of free slots).
  struct Block {
    uint32_t free = 0;              // a bit per slot
    int64_t before = 0, after = 0;  // neighbours in its list; kNone at the ends
  };

  bool IsFree(int64_t slot) const;
  uint32_t AllSlots(int64_t block) const;  // mask of its slots; the last block may have fewer
  void Touch(int64_t block);               // extends blocks_ and refs_ to include the block
  // Takes slots [first, first + count). REQUIRES: all of them are free and in one block.
  void Take(int64_t first, int64_t count, std::vector<TokenSlot>& slots);
  // These append at most `at_most` slots to `slots` and return how many: slots that follow `slot`
  // without a gap; slots of one run of whole blocks (REQUIRES: there is one); slots of one partial
  // block (REQUIRES: there is one, and no whole block).
  int64_t TakeBehind(int64_t slot, int64_t at_most, std::vector<TokenSlot>& slots);
  int64_t TakeFromRun(int64_t at_most, std::vector<TokenSlot>& slots);
  int64_t TakeFromPartial(int64_t at_most, std::vector<TokenSlot>& slots);
  // Replaces the block's mask and moves the block between runs and lists accordingly.
  void SetFree(int64_t block, uint32_t free);
  // Blocks [begin, end) become a run, or stop being one.
  void AddRun(int64_t begin, int64_t end);
  void RemoveRun(std::map<int64_t, int64_t>::iterator run);
  // A whole block joins the runs beside it, or is cut out of its run.
  void AddWhole(int64_t block);
  void RemoveWhole(int64_t block);
  // A partial block enters the list for its number of free slots, or leaves it.
  void Link(int64_t block);
  void Unlink(int64_t block);

  int64_t capacity_;
  int64_t num_used_ = 0;
  std::vector<uint32_t> refs_;  // references of each slot in blocks_
  // The blocks up to the highest that was ever used; those behind are whole.
  std::vector<Block> blocks_;
  // Runs of whole blocks: first block -> the one behind the last. No two runs touch.
  std::map<int64_t, int64_t> runs_;
  std::set<std::pair<int64_t, int64_t>> run_sizes_;  // the same as (number of blocks, first block)
  // Heads of the lists of partial blocks, by the number of free slots.
  std::array<int64_t, kBlockSlots> partial_;
};

}  // namespace lamina
