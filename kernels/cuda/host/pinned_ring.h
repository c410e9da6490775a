// Blocks of bytes that lie in the host's memory, pinned, and take turns in a GPU's: the weights of
// slices, or the K and V of layers. The schedule is that of tiers/block_ring.h with blocks that are
// always the same, and nobody waits but the GPU.
//
// Each block has one of a few buffers in the GPU's memory, always the same one, so that recorded
// graphs stay valid. When a block is left, a stream of its own begins to copy the next block that
// has the same buffer, as soon as the kernels are done that were launched before; kernels that use
// that block wait for its copy. So the host may launch a whole step ahead. Other orders are served
// too: a block that is not in its buffer is copied when it is entered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// Kernels that use blocks are launched on one stream. Thread: its owner.
class PinnedRing {
 public:
  // The blocks in the order in which they are used. `poison`: what a block has left behind is
  // overwritten, for tests. Borrows the stream. kOutOfSpace if there is not so much memory.
  // REQUIRES: the calling thread works with the stream's device; num_buffers >= 1.
  static Result<std::unique_ptr<PinnedRing>> Create(std::vector<int64_t> block_bytes,
                                                    int num_buffers, bool poison, Stream& stream);
  // Waits until copies have ended.
  ~PinnedRing();

  // Where a block lies, pinned, and where it is while it is entered.
  std::byte* Home(size_t block) const { return homes_[block].as<std::byte>(); }
  std::byte* Place(size_t block) const {
    return buffers_.as<std::byte>() + static_cast<int64_t>(BufferOf(block)) * largest_;
  }

  // Kernels that are launched between the two find the block in its place.
  void Enter(size_t block);
  void Leave(size_t block);
  // Kernels that are launched next write to the block's home. Returns whether they have to write to
  // its place as well, since it is there already or on its way.
  bool BeginWrite(size_t block);

  int64_t bytes_outside() const { return bytes_outside_; }
  int64_t buffer_bytes() const { return static_cast<int64_t>(buffers_.size_bytes()); }
  int64_t bytes_copied() const { return bytes_copied_; }
  // Blocks that were entered and that another one had taken the place of, or was to.
  int64_t num_out_of_order() const { return num_out_of_order_; }

 private:
  struct Buffer {
    int64_t block = -1;              // that is there, or on its way; -1: none
    std::unique_ptr<Event> free;     // kernels have done with what was there before
    std::unique_ptr<Event> arrived;  // the block has come
  };

  PinnedRing(std::vector<int64_t> block_bytes, bool poison, Stream& stream)
      : block_bytes_(std::move(block_bytes)), poison_(poison), stream_(stream) {}
  Status Allocate(int num_buffers);
  size_t BufferOf(size_t block) const { return block % in_turn_.size(); }
  // The next block that has the same buffer.
  size_t NextOf(size_t block) const;
  void StartCopy(size_t block);

  const std::vector<int64_t> block_bytes_;
  const bool poison_;
  Stream& stream_;
  int64_t largest_ = 0, bytes_outside_ = 0, bytes_copied_ = 0, num_out_of_order_ = 0;
  std::vector<PinnedBuffer> homes_;  // [blocks]
  DeviceBuffer buffers_;             // [num_buffers, largest_]
  std::vector<Buffer> in_turn_;
  std::unique_ptr<Stream> copies_;
};

}  // namespace lamina::cuda
