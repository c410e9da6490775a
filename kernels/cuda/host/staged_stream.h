// A stream with pinned memory beside it, through which bytes go to the device and come back: memory
// that others mapped (messages, checkpoints) need not be pinned, and many small pieces become one
// copy.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// Thread: one owner at a time; a thread that takes over calls Enter.
class StagedStream {
 public:
  // Errors as UseDevice, Stream::Create and PinnedBuffer::Create.
  static Result<std::unique_ptr<StagedStream>> Create(int device);
  ~StagedStream();

  int device() const { return device_; }
  Stream& stream() { return *stream_; }

  // The calling thread works with the device from here on.
  void Enter();

  // From here on memory that has become too small is kept until the stream ends: to free it waits
  // for everything that the device does, which with kernels that wait for others can be what waits
  // for this thread.
  void KeepOutgrown() { keeps_outgrown_ = true; }

  // Pinned memory to fill. Then Upload sends it, in the stream's order; it belongs to the stream
  // from there on. One at a time.
  std::byte* Take(size_t bytes);
  void Upload(const std::byte* taken, size_t bytes, void* device);

  // Both for any memory, which is free again when it returns. Large pieces are filled while those
  // before them are on their way.
  void Copy(const void* host, size_t bytes, void* device);

  // Pinned memory that holds `bytes` of the device's after the next Finish, until the next Fetch
  // after that.
  const std::byte* Fetch(const void* device, size_t bytes);

  // Waits until everything is done.
  Status Synchronize();

  // Likewise. A device that failed cannot be trusted with anything any more: the process ends then,
  // and says why.
  void Finish();

 private:
  // Filled from the front; free again when its event was reached.
  struct Segment {
    PinnedBuffer memory;
    std::unique_ptr<Event> sent;
    size_t used = 0;
  };

  StagedStream(int device, std::unique_ptr<Stream> stream)
      : device_(device), stream_(std::move(stream)) {}
  Status Grow(size_t segment_bytes);
  template <typename Buffer>
  void LetGo(Buffer& buffer);
  friend void GrowTo(size_t bytes, StagedStream& stream, DeviceBuffer& buffer);

  const int device_;
  const std::unique_ptr<Stream> stream_;
  std::array<Segment, 4> segments_;
  size_t current_ = 0;                 // that is being filled
  std::vector<PinnedBuffer> fetched_;  // the last one has room
  size_t fetched_used_ = 0;            // of the last one
  bool finished_ = true;               // nothing was fetched since
  bool keeps_outgrown_ = false;
  std::vector<DeviceBuffer> outgrown_;
  std::vector<PinnedBuffer> outgrown_pinned_;
};

// For what cannot fail but by a device that is of no more use, or by memory that is not there in
// the middle of a step: the process ends, and says why. Other nodes see it as they see a host that
// fails.
void RequireOk(const Status& status, int device);

// A buffer that is at least so large; what it held is lost if it grows. Ends the process as
// RequireOk.
void GrowTo(size_t bytes, StagedStream& stream, DeviceBuffer& buffer);

}  // namespace lamina::cuda
