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

namespace lamina {

// Which of `num_blocks` blocks lie outside: of every `interval` in a row the last. REQUIRES:
// interval >= 1.
std::vector<bool> OutsideByInterval(int num_blocks, int interval);

struct BlockRingOptions {
  std::vector<int64_t> block_bytes;  // in the order in which blocks are used
  std::vector<bool> outside;         // [block]
  int num_buffers = 2;
  // What a block has left behind is overwritten, for tests.
  bool poison = false;
  // False: nothing is kept, and Enter returns null, as where only the times of copies matter.
  bool holds_bytes = true;
};

// Since the ring was made.
struct BlockRingStats {
  int64_t num_entered = 0;  // blocks outside that were used
  // Of these, that were not the next ones in the order: what had come for nothing was given up.
  int64_t num_out_of_order = 0;
};

// Thread: one owner.
class BlockRing {
 public:
  // Fills the blocks that stay in memory. kInvalidArgument if fewer blocks than buffers, or as
  // many, lie outside: then all could stay in memory; kOutOfSpace if the memory cannot be had;
  // otherwise as the engine's copies.
  static Result<std::unique_ptr<BlockRing>> Create(BlockRingOptions options,
                                                   std::unique_ptr<CopyEngine> engine);
  ~BlockRing();
  BlockRing(const BlockRing&) = delete;
  BlockRing& operator=(const BlockRing&) = delete;

  // The bytes of a block, aligned to a page, which stay there until as many calls of Leave. Waits
  // for them. Blocks may be entered in any order, and several at a time, but only the one after the
  // last that was entered comes without a wait. kOutOfSpace if all buffers are in use by others; an
  // error of the engine.
  Result<const std::byte*> Enter(int block);
  void Leave(int block);

  // One more, or one less, may have entered a block while the others have. For each there is a
  // buffer, and one besides. Buffers are kept. kOutOfSpace as Create, and then there is none more.
  Status AddVisitor();
  void RemoveVisitor() { --num_visitors_; }

  int64_t memory_bytes() const { return memory_bytes_; }  // of all blocks and buffers in memory
  const BlockRingStats& stats() const { return stats_; }

 private:
  struct Memory {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  struct Buffer {
    Memory memory;
    int block = -1;  // -1: free
    bool is_here = false;
    int num_uses = 0;
  };
  BlockRing(BlockRingOptions options, std::unique_ptr<CopyEngine> engine);
  Result<Memory> Allocate(int64_t bytes);
  Status FillResidents();
  Status AddBuffers(int count);
  Buffer* BufferOf(int block);
  int NextOutside(int block) const;
  // Begins to copy into free buffers, in the order of use.
  void StartCopies();
  Status FinishOldest();
  // Visits come in another order than foreseen: begins anew with `block`.
  Status StartAnewWith(int block);

  const BlockRingOptions options_;
  const std::unique_ptr<CopyEngine> engine_;
  std::vector<Memory> residents_;  // [block]; null for those outside
  int64_t largest_outside_ = 0;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::deque<Buffer*> copying_;  // in the order of the engine's copies
  int next_ = 0;                 // block that is copied next
  int num_visitors_ = 0;
  int64_t memory_bytes_ = 0;
  BlockRingStats stats_;
};

}  // namespace lamina
