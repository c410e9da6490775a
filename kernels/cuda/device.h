// A CUDA device's memory, streams and events, as far as lamina needs them. Plain C++: it includes
// nothing of the CUDA toolkit.
//
// There are three kinds of build (LAMINA_CUDA of CMake, docs/cuda.md). The kernels of this folder
// are compiled by nvcc for GPUs, or for this machine's CPU where the emulation runs them
// (emulation/simt.h), or not at all. In the last kind only the first three functions below exist.
// LAMINA_HAS_CUDA, a macro, and LAMINA_CUDA_BUILT in CMake say whether the others do.
//
// Errors: work that was given to a stream may fail long after the call that gave it. So the calls
// that take a Stream return nothing; the stream keeps its first failure, and Synchronize() reports
// it every time from then on. Such a stream is of no more use. Unless stated otherwise, functions
// that return a Status or a Result return kInternal with the runtime's own words.
//
// Thread: a stream, and the memory that is used with it, has one owner at a time. The owner calls
// UseDevice before anything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace lamina::cuda {

// "nvcc 13.0", "emulated on the CPU", or "" in a build without CUDA.
std::string_view BuiltWith();

// The number of devices, at least 1. kNotFound if there is no device, no driver or one that is too
// old; kUnimplemented in a build without CUDA. Both say what to do. Thread: any.
Result<int> DeviceCount();

struct DeviceInfo {
  std::string name;
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;  // now
};

// Describes device number `device`. The calling thread goes on with the device that it worked with.
// kNotFound if there is no such device or none at all; kUnimplemented in a build without CUDA.
// Thread: any.
Result<DeviceInfo> DescribeDevice(int device);

// The calling thread works with this device from here on. Initialises the device, which takes a
// moment the first time.
Status UseDevice(int device);

// The free memory of the device that the calling thread works with.
Result<int64_t> FreeDeviceBytes();

// A CUDA stream: work that the device does in the order in which it was given, while the caller
// goes on.
class Stream {
 public:
  // A stream of the calling thread's device.
  static Result<std::unique_ptr<Stream>> Create();
  // Waits until everything is done.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Waits until everything is done. Returns the first failure of any work that was given to this
  // stream.
  Status Synchronize();

  // The runtime's handle: a cudaStream_t.
  void* handle() const { return handle_; }

  // For the functions that give work to a stream: notes a failure, if it is the first one.
  void Fail(Status status);

  // Returns the first failure so far, without waiting for more, and forgets it.
  Status TakeFailure() { return std::exchange(failure_, OkStatus()); }

 private:
  explicit Stream(void* handle) : handle_(handle) {}

  void* const handle_;
  Status failure_;
};

// A point in a stream's work, for other streams and the host to wait for. An event that was never
// recorded counts as reached.
class Event {
 public:
  static Result<std::unique_ptr<Event>> Create();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Makes the event the point behind all work that `stream` has been given so far.
  void Record(Stream& stream);
  // Makes all work that `stream` is given from now on wait for the event.
  void HoldBack(Stream& stream);
  // Whether the event was reached. Never blocks. True also after a failure, which the recorded
  // stream's Synchronize reports.
  bool Reached() const;
  // Blocks until the event was reached. kInternal if the device failed.
  Status Wait() const;

 private:
  explicit Event(void* handle) : handle_(handle) {}

  void* const handle_;
};

// kDevice: memory of the device. kPinned: memory of the host, which the device copies from and to
// at full speed, beside other work, and which kernels can access.
enum class MemoryKind { kDevice, kPinned };

// Owns memory that the CUDA runtime allocates, aligned to 256 bytes. Its contents are unspecified
// at first.
template <MemoryKind kind>
class MemoryBuffer {
 public:
  // Device memory is that of the calling thread's device. kOutOfSpace if there is not that much,
  // saying how much was asked for. A size of 0 gives an empty buffer.
  static Result<MemoryBuffer> Create(size_t size_bytes);
  MemoryBuffer() = default;
  // Waits until the device has done all that it was given.
  ~MemoryBuffer() { Free(); }
  MemoryBuffer(MemoryBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  MemoryBuffer& operator=(MemoryBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t size_bytes() const { return size_bytes_; }

 private:
  MemoryBuffer(void* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  void Free();

  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

using DeviceBuffer = MemoryBuffer<MemoryKind::kDevice>;
using PinnedBuffer = MemoryBuffer<MemoryKind::kPinned>;

template <>
Result<DeviceBuffer> DeviceBuffer::Create(size_t size_bytes);
template <>
void DeviceBuffer::Free();
template <>
Result<PinnedBuffer> PinnedBuffer::Create(size_t size_bytes);
template <>
void PinnedBuffer::Free();

// Pins memory that someone else has mapped, such as a shared-memory window, for as long as the
// object lives, so that the device can copy from and to it directly. Borrows the memory.
class PinnedRange {
 public:
  // kOutOfSpace if so much memory cannot be pinned (ulimit -l may limit it); kInvalidArgument if
  // the system refuses for another reason.
  static Result<std::unique_ptr<PinnedRange>> Create(void* data, size_t size_bytes);
  ~PinnedRange();
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;

 private:
  explicit PinnedRange(void* data) : data_(data) {}

  void* const data_;
};

// Copy and fill memory in the stream's order. Host memory is the device's to read or write until
// the copy is done; it need not be pinned, but is slower then. A size of 0 is fine.
void CopyToDevice(void* device, const void* host, size_t size_bytes, Stream& stream);
void CopyToHost(void* host, const void* device, size_t size_bytes, Stream& stream);
void CopyOnDevice(void* to, const void* from, size_t size_bytes, Stream& stream);
void FillOnDevice(void* device, unsigned char byte, size_t size_bytes, Stream& stream);

}  // namespace lamina::cuda
