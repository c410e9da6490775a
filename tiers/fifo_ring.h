// A ring of which every block lies outside in turn: the first in, first out order of Pie (section
// 3.3), for blocks that are changed whenever they are used, as the layers of a KV cache are.
//
// There is memory for `num_slots` of n blocks. Whenever a block is entered, and nothing is on its
// way in, the block that is needed soonest of those outside begins to come, if there is room; and
// if nothing is on its way out, the one that is needed last of those inside begins to go, unless
// all that are outside are needed later still. So copies in and out never take turns on one way,
// and there is never more under way than the link can hide.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tiers/copy_engine.h"
#include "tiers/ring.h"

namespace lamina {

struct FifoRingOptions {
  int num_blocks = 0;
  int64_t block_bytes = 0;  // of each
  int num_slots = 0;
  bool poison = false;      // as BlockRingOptions'
  bool holds_bytes = true;  // likewise
};

// Thread: one owner.
class FifoRing final : public Ring {
 public:
  // All blocks begin as zeros. `in` and `out` copy at the same time. kInvalidArgument if there are
  // fewer than 2 slots, or no fewer than blocks; kOutOfSpace if the memory cannot be had.
  static Result<std::unique_ptr<FifoRing>> Create(const FifoRingOptions& options,
                                                  std::unique_ptr<CopyEngine> in,
                                                  std::unique_ptr<CopyEngine> out);
  ~FifoRing() override;

  Result<std::byte*> Enter(int block) override;
  void Leave(int block, bool changed) override;
  const RingStats& stats() const override { return stats_; }

  // Whether the block is in memory, with all of its bytes, and does not go.
  bool IsInside(int block) const { return At(block).where == Where::kInside; }

 private:
  enum class Where { kInside, kComing, kGoing, kOutside };
  struct Block {
    Where where = Where::kOutside;
    std::byte* memory = nullptr;  // of its slot, unless it is outside
    int num_uses = 0;
  };
  explicit FifoRing(const FifoRingOptions& options) : options_(options) {}
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

  const FifoRingOptions options_;
  std::unique_ptr<CopyEngine> in_, out_;
  std::byte* memory_ = nullptr;   // of all slots
  std::vector<std::byte*> free_;  // slots; nulls where no bytes are held
  std::vector<Block> blocks_;
  std::optional<int> coming_, going_;
  RingStats stats_;
};

}  // namespace lamina
