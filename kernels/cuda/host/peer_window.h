// The window of a peer's device (transport/transport.h) as kernels of this one write messages into
// it. Either this device has mapped it. Or they write into an outbox, memory of this device with
// the same offsets, and the host posts each message to the peer as soon as its kernels are done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/flags.h"
#include "kernels/cuda/shared_buffer.h"

namespace lamina::cuda {

// Thread: one owner.
class PeerWindow {
 public:
  // Errors as SharedBuffer::Map.
  static Result<std::unique_ptr<PeerWindow>> Map(int descriptor, size_t size_bytes);

  // `outbox` is borrowed. Messages of a lane leave in their order. Errors as PinnedBuffer::Create.
  static Result<std::unique_ptr<PeerWindow>> ByPosts(std::byte* outbox, int num_lanes);

  // Where kernels write what belongs at an offset of the window: a flag, and the message behind it.
  std::byte* at(size_t offset) const { return data_ + offset; }

  // Behind what `stream` has done to the message: its flag is raised for the peer.
  void Raise(int lane, size_t offset, size_t payload_bytes, const Flag& becomes, Waits& waits,
             Stream& stream);

  // By posts: gives `post` what may leave, a flag with its message and their offset, until it
  // returns kTryAgain; then again with the next call. Its other errors are returned. What was to
  // leave behind a wait that was given up is forgotten. Returns whether anything left.
  using Post = std::function<Status(std::span<const std::byte> message, size_t offset)>;
  Result<bool> Carry(const Post& post);

  // So many messages of the lane were raised and have not left.
  size_t num_carried(int lane) const {
    return raised_.empty() ? 0 : raised_[static_cast<size_t>(lane)].size();
  }
  bool carries() const;  // any

 private:
  struct Message {
    uint64_t number;
    size_t offset, bytes;
    const Waits* waits;
  };

  PeerWindow() = default;

  std::unique_ptr<SharedBuffer> mapped_;  // null: by posts
  std::byte* data_ = nullptr;
  std::vector<std::deque<Message>> raised_;  // by posts: [lanes]
  // Likewise, the number of the last message that is there: [lanes] uint64_t.
  PinnedBuffer told_;
};

}  // namespace lamina::cuda
