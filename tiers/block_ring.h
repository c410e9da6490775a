// Blocks of bytes that are needed one after the other, again and again, in less memory than they
// have: the weights of a model's slices, which every step goes through in the same order.
//
// Some blocks stay in memory. The others lie outside and take turns in a few buffers: while blocks
// are used, the next one that lies outside comes into a buffer that is free, so that in the best
// case nobody waits for it. With every i-th block outside and one buffer this is the schedule of
// Select-N (interval i), where a block begins to come when the first one of its interval is
// entered; with two buffers the way into memory need not rest while such a block is used. Interval
// 1 with two buffers is the schedule of DeepSpeed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.h"
#include "tiers/copy_engine.h"
#include "tiers/ring.h"

namespace lamina {

struct BlockRingOptions {
  std::vector<int64_t> block_bytes;  // in the order in which blocks are used
  std::vector<bool> outside;         // [block]
  int num_buffers = 2;
  // What a block has left behind is overwritten, for tests.
  bool poison = false;
  // False: nothing is kept, and Enter returns null, as where only the times of copies matter.
  bool holds_bytes = true;
  // What stays in memory begins as zeros instead of what lies outside.
  bool begins_empty = false;
};

// Thread: one owner.
class BlockRing final : public Ring {
 public:
  // Fills the blocks that stay in memory. kOutOfSpace if the memory cannot be had; otherwise as the
  // engine's copies.
  static Result<std::unique_ptr<BlockRing>> Create(BlockRingOptions options,
                                                   std::unique_ptr<CopyEngine> engine);
  ~BlockRing() override;
  BlockRing(const BlockRing&) = delete;
  BlockRing& operator=(const BlockRing&) = delete;

  Result<std::byte*> Enter(int block) override;
  void Leave(int block, bool changed) override;
  void Leave(int block) { Leave(block, false); }

  // Other blocks lie outside from now on. Nothing is copied for that alone: a block that is to stay
  // does so when it has come next, and one that is not goes when it has been used next. One that is
  // to stay and finds no memory goes on to take its turns. REQUIRES: one for each block.
  void SetOutside(std::vector<bool> outside);
  const std::vector<bool>& outside() const { return outside_; }

  // One more, or one less, may have entered a block while the others have. For each there is a
  // buffer, and one besides. Buffers are kept.
  void AddVisitor();
  void RemoveVisitor() { --num_visitors_; }

  int64_t memory_bytes() const { return memory_bytes_; }  // of all blocks and buffers in memory
  const RingStats& stats() const override { return stats_; }

 private:
  struct Memory {
    std::byte* data = nullptr;
    int64_t bytes = 0;  // 0: there is none
  };
  struct Block {
    Memory memory;  // also while it comes
    bool is_here = false;
    bool changed = false;
    int num_uses = 0;
  };
  struct Copy {
    int block = 0;
    bool is_back = false;
  };
  BlockRing(BlockRingOptions options, std::unique_ptr<CopyEngine> engine);
  Block& At(int block) { return blocks_[static_cast<size_t>(block)]; }
  bool IsOutside(int block) const { return outside_[static_cast<size_t>(block)]; }
  Result<Memory> Allocate(int64_t bytes);
  void Free(Memory& memory);
  // Gives back what is behind so many bytes.
  void Trim(Memory& memory, int64_t bytes);
  // Blocks outside that have memory at the moment.
  int NumInTurn() const;
  // Memory for a block that takes turns, if there is a buffer for one more.
  Result<Memory> TakeBuffer(int block);
  Status FillResidents();
  // Begins to copy what is used next and not there, in the order of use, as far as there is memory.
  Status StartCopies();
  Status StartCopy(int block);
  Status FinishOldest();
  // No copy back is under way any more. Its error is that of the next FinishOldest.
  void FinishCopiesBack();
  // A block that lies outside is no longer needed.
  void Drop(int block);
  // The block has to come, and none that comes or is here must wait for that.
  Status StartAnewWith(int block);

  const BlockRingOptions options_;
  const std::unique_ptr<CopyEngine> engine_;
  std::vector<bool> outside_;
  int num_outside_ = 0;
  int64_t largest_outside_ = 0;
  std::vector<Block> blocks_;
  std::vector<Memory> spare_;  // buffers that no block has
  std::deque<Copy> copying_;   // in the order of the engine's
  int last_entered_ = -1;
  int num_buffers_ = 0;
  int num_visitors_ = 0;
  Status failed_back_;  // of a copy that nobody waited for yet
  int64_t memory_bytes_ = 0;
  RingStats stats_;
};

}  // namespace lamina
