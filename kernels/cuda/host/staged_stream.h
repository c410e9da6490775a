// A stream with pinned memory, through which bytes are copied to the device and back. So memory
// that others have mapped (messages, checkpoints) need not be pinned, and many small pieces become
// one copy.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// Owns the stream and the pinned memory. Thread: one owner at a time; a thread that takes over
// calls Enter first.
class StagedStream {
 public:
  // A stream of device number `device`, with which the calling thread works from here on.
  // kOutOfSpace if there is no pinned memory; kInternal if the device cannot be used.
  static Result<std::unique_ptr<StagedStream>> Create(int device);
  // Waits until everything is done.
  ~StagedStream();

  int device() const { return device_; }
  Stream& stream() { return *stream_; }

  // The calling thread works with the device from here on. Ends the process if it cannot.
  void Enter();

  // From here on memory that has become too small is kept until the stream is destroyed. Freeing it
  // would wait for everything that the device does, and a kernel that waits for a flag may be
  // waiting for what this thread does next.
  void KeepOutgrown() { keeps_outgrown_ = true; }

  // Returns pinned memory to be filled and then given to Upload, which copies it to the device in
  // the stream's order; the memory is the stream's from there on. REQUIRES: what was taken before
  // has been uploaded.
  std::byte* Take(size_t bytes);
  void Upload(const std::byte* taken, size_t bytes, void* device);

  // Copies from any memory of the host, which is free again when this returns. Large copies go in
  // pieces, one being filled while those before it are in flight.
  void Copy(const void* host, size_t bytes, void* device);

  // Copies from the device, in the stream's order. Returns pinned memory that holds the bytes after
  // the next Finish, until the next Fetch after that.
  const std::byte* Fetch(const void* device, size_t bytes);

  // Waits until everything is done. Returns the stream's first failure.
  Status Synchronize();

  // Waits until everything is done. If the device failed, ends the process (RequireOk): nothing on
  // that device can be trusted any more.
  void Finish();

 private:
  // Pinned memory for uploads, filled from the front. It is free again when `sent` was reached,
  // which is recorded when the next segment is begun.
  struct Segment {
    PinnedBuffer memory;
    std::unique_ptr<Event> sent;
    size_t used = 0;  // bytes
  };

  StagedStream(int device, std::unique_ptr<Stream> stream)
      : device_(device), stream_(std::move(stream)) {}
  // Gives every segment memory of this size. kOutOfSpace if there is not that much.
  Status Grow(size_t segment_bytes);
  // Frees a buffer, or keeps it if KeepOutgrown was called. The buffer is empty afterwards.
  template <typename Buffer>
  void LetGo(Buffer& buffer);
  friend void GrowTo(size_t bytes, StagedStream& stream, DeviceBuffer& buffer);

  const int device_;
  const std::unique_ptr<Stream> stream_;
  std::array<Segment, 4> segments_;
  size_t current_ = 0;                 // the segment that is being filled
  std::vector<PinnedBuffer> fetched_;  // memory of Fetch; only the last one has room
  size_t fetched_used_ = 0;            // bytes of the last one
  bool finished_ = true;               // nothing was fetched since the last Synchronize
  bool keeps_outgrown_ = false;
  std::vector<DeviceBuffer> outgrown_;
  std::vector<PinnedBuffer> outgrown_pinned_;
};

// Ends the process, saying why, if `status` is an error. For calls that fail only if the device is
// of no more use, or if memory is missing in the middle of a step. To other nodes this looks like a
// host that fails.
void RequireOk(const Status& status, int device);

// Makes the buffer at least so large. If it grows, its contents are lost. If there is no memory,
// the process ends.
void GrowTo(size_t bytes, StagedStream& stream, DeviceBuffer& buffer);

}  // namespace lamina::cuda
