// Blocks of bytes that lie in the host's memory, pinned, and take turns in a GPU's: the weights of
// slices, or the K and V of layers. The schedule is that of tiers/block_ring.h, and nobody waits
// but the GPU.
//
// Each block that lies outside has one of a few buffers in the GPU's memory, always the same one,
// so that recorded graphs stay valid. When a block is left, a stream of its own begins to copy the
// next block that has the same buffer, as soon as the kernels are done that were launched before;
// kernels that use that block wait for its copy. So the host may launch a whole step ahead. Other
// orders are served too: a block that is not in its buffer is copied when it is entered.
//
// Which blocks lie outside may change. Then those that stay have a buffer to themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

struct PinnedRingOptions {
  std::vector<int64_t> block_bytes = {};  // in the order in which blocks are used
  int num_shared = 1;                     // buffers in which blocks take turns
  int num_buffers = 1;                    // those, and some for blocks that stay
  bool poison = false;                    // what a block has left behind is overwritten, for tests
};

// Kernels that use blocks are launched on one stream. Thread: its owner.
class PinnedRing {
 public:
  // All blocks lie outside at first. Borrows the stream. kOutOfSpace if there is not so much
  // memory. REQUIRES: the calling thread works with the stream's device; 1 <= num_shared <=
  // num_buffers.
  static Result<std::unique_ptr<PinnedRing>> Create(PinnedRingOptions options, Stream& stream);
  // Waits until copies have ended.
  ~PinnedRing();

  // Other blocks lie outside from now on; nothing is copied for that alone. REQUIRES: there are
  // buffers for those that stay; no block is entered, and none is ever written to.
  void SetOutside(const std::vector<bool>& outside);

  // Where a block lies, pinned, and where it is while it is entered.
  std::byte* Home(size_t block) const { return homes_[block].as<std::byte>(); }
  std::byte* Place(size_t block) const {
    return memory_.as<std::byte>() + static_cast<int64_t>(buffer_of_[block]) * largest_;
  }

  // Kernels that are launched between the two find the block in its place.
  void Enter(size_t block);
  void Leave(size_t block);
  // Kernels that are launched next write to the block's home. Returns whether they have to write to
  // its place as well, since it is there already or on its way.
  bool BeginWrite(size_t block);

  int64_t bytes_outside() const { return bytes_outside_; }  // of all blocks
  int64_t buffer_bytes() const { return static_cast<int64_t>(memory_.size_bytes()); }
  int64_t bytes_copied() const { return bytes_copied_; }
  // Blocks that were entered and that another one had taken the place of, or was to.
  int64_t num_out_of_order() const { return num_out_of_order_; }

 private:
  struct Buffer {
    int64_t block = -1;              // that is there, or on its way; -1: none
    std::unique_ptr<Event> free;     // kernels have done with what was there before
    std::unique_ptr<Event> arrived;  // the block has come
  };

  PinnedRing(PinnedRingOptions options, Stream& stream)
      : options_(std::move(options)), stream_(stream) {}
  Status Allocate();
  Buffer& BufferOf(size_t block) { return buffers_[buffer_of_[block]]; }
  void StartCopy(size_t block);

  const PinnedRingOptions options_;
  Stream& stream_;
  int64_t largest_ = 0, bytes_outside_ = 0, bytes_copied_ = 0, num_out_of_order_ = 0;
  std::vector<PinnedBuffer> homes_;  // [blocks]
  DeviceBuffer memory_;              // [num_buffers, largest_]
  // The first num_shared are those in which blocks take turns.
  std::vector<Buffer> buffers_;
  std::vector<size_t> buffer_of_;  // [blocks]
  std::vector<size_t> next_;       // [blocks] the next block that has the same buffer
  std::unique_ptr<Stream> copies_;
};

}  // namespace lamina::cuda
