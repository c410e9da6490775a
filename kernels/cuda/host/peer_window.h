// The window of a peer's GPU (transport/transport.h), as kernels of this GPU write messages into
// it. There are two ways. Either this GPU has mapped the window. Or kernels write into an outbox,
// memory of this GPU with the same offsets, and the host posts each message to the peer as soon as
// its kernels are done. A message is a Flag (flags.h) with the payload behind it.
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

// Owns the mapping, if there is one. Thread: one owner.
class PeerWindow {
 public:
  // Maps the window of which the peer has sent `descriptor`, which stays the caller's.
  // kInvalidArgument if it is not shared device memory, is smaller than size_bytes or cannot be
  // reached; kUnimplemented if the driver is too old.
  static Result<std::unique_ptr<PeerWindow>> Map(int descriptor, size_t size_bytes);

  // Sends by posts from `outbox`, device memory that is borrowed. Messages of a lane leave in the
  // order in which they were raised. kOutOfSpace if there is no pinned memory.
  static Result<std::unique_ptr<PeerWindow>> ByPosts(std::byte* outbox, int num_lanes);

  // Where kernels write the message that belongs at an offset of the window.
  std::byte* at(size_t offset) const { return data_ + offset; }

  // Where a message is in the window, and how large.
  struct Place {
    int lane = 0;
    size_t offset = 0;  // of its flag
    size_t payload_bytes = 0;
  };
  // Raises the flag of the message at `place` for the peer, behind all that `stream` has been given
  // so far. `waits` are those of the stream; they must outlive the message's leaving. REQUIRES: the
  // numbers of a lane's messages only grow.
  void Raise(const Place& place, const Flag& becomes, Waits& waits, Stream& stream);

  // Posts a message to an offset of the peer's window. kTryAgain if the queue is full.
  using Post = std::function<Status(std::span<const std::byte> message, size_t offset)>;

  // By posts: calls `post` for each message whose kernels are done. If that returns kTryAgain, the
  // rest is left to the next call; any other error is returned. Messages behind a wait that was
  // given up are forgotten. Returns whether any message left. Does nothing if the window is mapped.
  Result<bool> Carry(const Post& post);

  // The number of messages of the lane that were raised and have not left. 0 if the window is
  // mapped.
  size_t num_carried(int lane) const {
    return raised_.empty() ? 0 : raised_[static_cast<size_t>(lane)].size();
  }
  // Whether there are such messages in any lane.
  bool carries() const;

 private:
  // A message that was raised and has not left.
  struct Message {
    uint64_t number;       // of its flag
    size_t offset, bytes;  // of flag and payload
    const Waits* waits;
  };

  PeerWindow() = default;

  std::unique_ptr<SharedBuffer> mapped_;     // null: by posts
  std::byte* data_ = nullptr;                // the window or the outbox
  std::vector<std::deque<Message>> raised_;  // [lanes]; empty if the window is mapped
  // By posts: [lanes] uint64_t, the number of the latest message whose kernels are done.
  PinnedBuffer told_;
};

}  // namespace lamina::cuda
