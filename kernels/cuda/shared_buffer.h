// Device memory that several processes of a host, or several devices, share. The process that
// creates it sends a file descriptor of it to the others over a unix socket, and they map it. The
// memory exists until the last of them has unmapped it, however the others end.
//
// It uses CUDA's virtual memory management with POSIX descriptors. Handles of cudaIpcGetMemHandle
// would need both processes in one PID namespace, and the memory would not outlive the process that
// created it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"

namespace lamina::cuda {

// A GPU's UUID: the same in every process, whatever number the device has there.
using DeviceId = std::array<std::byte, 16>;

// The id of device number `device`. kInternal if the runtime cannot tell.
Result<DeviceId> IdOfDevice(int device);

// Whether kernels of several processes run on the device at the same time (MPS). Without MPS the
// processes take turns of some milliseconds. kUnimplemented if the driver is too old.
Result<bool> ProcessesShareDevice(int device);

// A piece of shared device memory, mapped into this process for one device. Owns the mapping and
// its descriptors. Thread: one owner, who has called UseDevice.
class SharedBuffer {
 public:
  // Allocates at least `size_bytes` on the calling thread's device, aligned to 256 bytes at least;
  // the contents are unspecified. kUnimplemented, saying why, if the device, driver or system
  // cannot share memory, or cannot run kernels that wait for flags: the driver of a device with a
  // display ends them, and with CUDA_LAUNCH_BLOCKING the host waits for each. kOutOfSpace if the
  // device has less memory left. kInvalidArgument if it cannot be mapped.
  static Result<std::unique_ptr<SharedBuffer>> Create(size_t size_bytes);

  // Maps memory that this or another process has created, for the calling thread's device to read
  // and write. The descriptor stays the caller's. kInvalidArgument if it is not one of such memory,
  // the memory is smaller than size_bytes, or this device cannot reach it; kUnimplemented if the
  // driver is too old.
  static Result<std::unique_ptr<SharedBuffer>> Map(int descriptor, size_t size_bytes);

  // Unmaps the memory and closes the descriptors. REQUIRES: no stream of this process uses it any
  // more.
  ~SharedBuffer();
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

  // A descriptor to send to other processes; this object closes it. -1 if the memory was mapped and
  // not created by this object.
  int descriptor() const { return descriptor_; }

  // Whether NICs of this host can read and write the memory, and running kernels see what a NIC
  // writes in the order in which it wrote it. False if the memory was mapped.
  bool reached_by_nics() const { return reached_by_nics_; }

  // A DMA-BUF descriptor for registering the memory with a NIC; this object closes it. -1 if there
  // is none: the memory is then registered by its address.
  int dma_buf() const { return dma_buf_; }

 private:
  SharedBuffer() = default;
  // Maps an allocation of the driver's for `device`. kInvalidArgument if the driver refuses.
  Status MapHandle(uint64_t handle, size_t size_bytes, int device);
  // Finds out whether NICs reach the memory, and opens its DMA-BUF.
  void OpenToNics(int device);

  std::byte* data_ = nullptr;  // the address range; null: none is reserved
  size_t size_bytes_ = 0;
  bool mapped_ = false;  // memory is mapped at the range
  int descriptor_ = -1;
  bool reached_by_nics_ = false;
  int dma_buf_ = -1;
};

}  // namespace lamina::cuda
