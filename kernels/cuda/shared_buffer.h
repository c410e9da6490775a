// Device memory that more than one process of a host, or more than one device, uses: who makes it
// hands a descriptor of it to others, over a unix socket, and they map it. It is there until the
// last of them has let go of it, however the others end.
//
// (CUDA's virtual memory management with POSIX descriptors. Handles of cudaIpcGetMemHandle would
// need both processes in one PID namespace, and memory under them that outlives neither.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"

namespace lamina::cuda {

// Which GPU of this host it is; the same in every process.
using DeviceId = std::array<std::byte, 16>;
Result<DeviceId> IdOfDevice(int device);

// Whether kernels of several processes run on the device beside each other (MPS), instead of one
// process after the other, for milliseconds each.
Result<bool> ProcessesShareDevice(int device);

// Aligned to 256 bytes at least. Thread: one owner, who has called UseDevice.
class SharedBuffer {
 public:
  // At least `size_bytes` of the calling thread's device; contents unspecified. kUnimplemented: the
  // device, driver or system cannot share memory like that, and what is missing, or kernels that
  // wait would be ended (a display's device) or waited for (CUDA_LAUNCH_BLOCKING); kOutOfSpace.
  static Result<std::unique_ptr<SharedBuffer>> Create(size_t size_bytes);

  // Memory that another process, or this one, has made, for the calling thread's device to read and
  // write. The descriptor stays the caller's. kInvalidArgument: it is none of such memory, there is
  // less of it, or this device cannot reach it.
  static Result<std::unique_ptr<SharedBuffer>> Map(int descriptor, size_t size_bytes);

  ~SharedBuffer();  // REQUIRES: no stream of this process works with it any more
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

  // For other processes; this object's. -1 of what was mapped.
  int descriptor() const { return descriptor_; }

  // Whether NICs of this host can read it and write it, and kernels that run see what they write in
  // the order in which they wrote it. False of what was mapped. dma_buf: a descriptor of it for
  // them, this object's; -1: they are given its address.
  bool reached_by_nics() const { return reached_by_nics_; }
  int dma_buf() const { return dma_buf_; }

 private:
  SharedBuffer() = default;
  Status MapHandle(uint64_t handle, size_t size_bytes, int device);
  void OpenToNics(int device);

  std::byte* data_ = nullptr;  // of the address range; null: none is reserved
  size_t size_bytes_ = 0;
  bool mapped_ = false;
  int descriptor_ = -1;
  bool reached_by_nics_ = false;
  int dma_buf_ = -1;
};

}  // namespace lamina::cuda
