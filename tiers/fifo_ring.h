// A ring of which every block lies outside in turn: the first in, first out order of Pie (section
// 3.3), for blocks that are changed whenever they are used, as the layers of a KV cache are.
//
// There is memory for `num_slots` of n blocks. Whenever a block is entered, and nothing is on its
// way in, the block that is needed soonest of those outside begins to come, if there is room; and
// if nothing is on its way out, the one that is needed last of those inside begins to go, unless
// all that are outside are needed later still, or a slot is free for the next one. So copies in and
// out never take turns on one way, and there is never more under way than the link can hide.
//
// The number of slots, and how much of each block is of use, may change at any time: with fewer
// slots there is room for more of each block in the same memory (Pie, section 4.1). Nothing is
// copied for that alone: addresses are reserved for all blocks at their largest, and memory comes
// and goes by pages.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tiers/copy_engine.h"
#include "tiers/ring.h"

namespace lamina {

struct FifoRingOptions {
  int num_blocks = 0;
  BlockRuns block;          // of each, with the longest runs that it may come to have
  int num_slots = 0;        // at first
  bool poison = false;      // as BlockRingOptions'
  bool holds_bytes = true;  // likewise
  // [number of slots] How long runs are then; empty: as long as in `block` with any.
  std::vector<int64_t> run_bytes = {};
};

// Thread: one owner.
class FifoRing final : public Ring {
 public:
  // All blocks begin as zeros. `in` and `out` copy at the same time. kInvalidArgument if there are
  // fewer than 2 slots, or more than blocks; kOutOfSpace if the memory cannot be had.
  static Result<std::unique_ptr<FifoRing>> Create(const FifoRingOptions& options,
                                                  std::unique_ptr<CopyEngine> in,
                                                  std::unique_ptr<CopyEngine> out);
  ~FifoRing() override;

  Result<std::byte*> Enter(int block) override;
  void Leave(int block, bool changed) override;
  const RingStats& stats() const override { return stats_; }

  // There are to be so many slots. With more, runs are shorter at once, and what is behind them is
  // lost. With fewer, the memory of those that are too many is given back when the blocks in them
  // have gone; then runs are longer. kInvalidArgument as Create. REQUIRES: options.run_bytes were
  // not empty.
  Status SetSlots(int num_slots);
  // The number that the length of runs follows: the one that was set last, or the larger one before
  // it, until there are so few slots.
  int slots_in_effect() const { return slots_in_effect_; }

  // What a block takes to come or to go, whichever is slower, as lately seen; 0: nothing has yet.
  double seconds_per_block() const;

  // Whether the block is in memory, with all of its bytes, and does not go.
  bool IsInside(int block) const { return At(block).where == Where::kInside; }

 private:
  enum class Where { kInside, kComing, kGoing, kOutside };
  struct Block {
    Where where = Where::kOutside;
    std::byte* memory = nullptr;  // of its slot, unless it is outside
    int num_uses = 0;
  };
  explicit FifoRing(const FifoRingOptions& options)
      : options_(options),
        runs_(options.block),
        num_slots_(options.num_slots),
        wanted_slots_(options.num_slots),
        slots_in_effect_(options.num_slots),
        blocks_(static_cast<size_t>(options.num_blocks)) {}
  Block& At(int block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& At(int block) const { return blocks_[static_cast<size_t>(block)]; }

  // Takes note of copies that have ended.
  Status Poll();
  Status FinishIn();
  Status FinishOut();
  // Begins what is to begin when `block` is entered.
  void Decide(int block);
  void StartIn(int block);
  void StartOut(int block);
  // Of the blocks that are there, the one that is needed last, counted from `block` on; not `block`
  // itself, and none that is in use. nullopt: there is none.
  std::optional<int> Coldest(int block) const;
  Status BringAtOnce(int block);
  // The slot is free, or, if there are too many, gives back its memory.
  void Free(std::byte* slot);
  // What num_slots_ and wanted_slots_ allow is in effect.
  void Settle();
  void SetRunBytes(int64_t run_bytes);
  int64_t RunBytes(int num_slots) const;
  // Gives back the memory behind the runs' bytes of use.
  void Trim(std::byte* slot) const;
  void Poison(std::byte* slot) const;

  const FifoRingOptions options_;
  BlockRuns runs_;    // of each block, what is of use now
  int num_slots_;     // that have memory
  int wanted_slots_;  // see SetSlots
  int slots_in_effect_;
  std::unique_ptr<CopyEngine> in_, out_;
  // Of all slots; of as many as there are blocks, if their number changes.
  std::byte* memory_ = nullptr;
  int64_t memory_bytes_ = 0;
  // Slots without a block, with and without memory; nulls where no bytes are held.
  std::vector<std::byte*> free_, unused_;
  std::vector<Block> blocks_;
  std::optional<int> coming_, going_;
  RingStats stats_;
};

}  // namespace lamina
