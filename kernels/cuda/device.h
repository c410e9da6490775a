// A CUDA device's memory, streams and events, as far as lamina needs them. Plain C++: includes
// nothing of the CUDA toolkit.
//
// The kernels of this folder run on three kinds of build (LAMINA_CUDA of CMake, docs/cuda.md):
// compiled by nvcc for GPUs, compiled for this machine's CPU and run by the emulation
// (emulation/simt.h), or not at all. Without any, only the first three functions below exist;
// LAMINA_HAS_CUDA (a macro, and LAMINA_CUDA_BUILT in CMake) says whether the others do.
//
// Errors: what a stream was told to do may fail long after the call that asked for it. So the calls
// that take a Stream return nothing, and the stream keeps its first failure for Synchronize(),
// which reports it every time from then on: such a stream is of no more use. Thread: a stream, and
// the memory that is used with it, has one owner at a time. The owner calls UseDevice before
// anything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace lamina::cuda {

// "nvcc 13.0", "emulated on the CPU" or "" for none.
std::string_view BuiltWith();

// kNotFound if there is none, no driver or one that is too old; kUnimplemented in a build without
// CUDA. Both say what to do.
Result<int> DeviceCount();

struct DeviceInfo {
  std::string name;
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;      // now
  int compute_capability = 0;  // 90 is 9.0
  int num_multiprocessors = 0;
};
// kNotFound if there is no such device, and as DeviceCount.
Result<DeviceInfo> DescribeDevice(int device);

// The calling thread works with this device from here on; also makes it ready, which takes a moment
// the first time.
Status UseDevice(int device);

// Of the device that the calling thread works with.
Result<int64_t> FreeDeviceBytes();

// Work in the order in which it was asked for, at its own pace.
class Stream {
 public:
  static Result<std::unique_ptr<Stream>> Create();
  ~Stream();  // waits
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Waits until everything is done and returns the first failure of anything that was asked of this
  // stream.
  Status Synchronize();

  // The runtime's handle: a cudaStream_t.
  void* handle() const { return handle_; }

  // For the functions that work on a stream: keeps the first failure.
  void Fail(Status status);

  // The first failure so far, without waiting for more; the stream forgets it.
  Status TakeFailure() { return std::exchange(failure_, OkStatus()); }

 private:
  explicit Stream(void* handle) : handle_(handle) {}

  void* const handle_;
  Status failure_;
};

// A point in a stream's work.
class Event {
 public:
  static Result<std::unique_ptr<Event>> Create();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Record(Stream& stream);    // from now on the event is this point
  void HoldBack(Stream& stream);  // what `stream` is told from now on waits for the event
  // Never blocks; true also after a failure, which the recorded stream's Synchronize reports.
  bool Reached() const;
  Status Wait() const;

 private:
  explicit Event(void* handle) : handle_(handle) {}

  void* const handle_;
};

enum class MemoryKind { kDevice, kPinned };

// Memory of the runtime's, aligned to 256 bytes; contents unspecified.
template <MemoryKind kind>
class MemoryBuffer {
 public:
  // kOutOfSpace, saying how much was asked for and how much is free. 0 bytes: an empty buffer.
  static Result<MemoryBuffer> Create(size_t size_bytes);
  MemoryBuffer() = default;
  ~MemoryBuffer() { Free(); }  // waits for the device
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
using PinnedBuffer =
    // Of this machine: the device copies from and to it at full speed, beside other work.
    MemoryBuffer<MemoryKind::kPinned>;

template <>
Result<DeviceBuffer> DeviceBuffer::Create(size_t size_bytes);
template <>
void DeviceBuffer::Free();
template <>
Result<PinnedBuffer> PinnedBuffer::Create(size_t size_bytes);
template <>
void PinnedBuffer::Free();

// Makes memory that was mapped by others (a shared-memory window) pinned while the object lives, so
// that copies need no staging. kOutOfSpace or kInvalidArgument if the system refuses.
class PinnedRange {
 public:
  static Result<std::unique_ptr<PinnedRange>> Create(void* data, size_t size_bytes);
  ~PinnedRange();
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;

 private:
  explicit PinnedRange(void* data) : data_(data) {}

  void* const data_;
};

// Copies in the stream's order. Host memory must stay as it is until the copy is done; memory that
// is not pinned is allowed, and slower.
void CopyToDevice(void* device, const void* host, size_t size_bytes, Stream& stream);
void CopyToHost(void* host, const void* device, size_t size_bytes, Stream& stream);
void CopyOnDevice(void* to, const void* from, size_t size_bytes, Stream& stream);
void FillOnDevice(void* device, unsigned char byte, size_t size_bytes, Stream& stream);

}  // namespace lamina::cuda
