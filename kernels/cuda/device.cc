#include "kernels/cuda/device.h"

#include <cstdlib>
#include <mutex>

#include "kernels/cuda/runtime_status.h"

namespace lamina::cuda {
namespace {

// Rounded up.
std::string Megabytes(size_t bytes) {
  return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
}

Status OutOfMemory(size_t size_bytes) {
  cudaGetLastError();  // clears the error: the runtime would report it again to whoever asks next
  size_t free_bytes = 0, total_bytes = 0;
  const bool known = cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess;
  return OutOfSpace(
      "the device has no " + Megabytes(size_bytes) + " of memory in one piece" +
      (known ? "; " + Megabytes(free_bytes) + " of " + Megabytes(total_bytes) + " are free" : ""));
}

// Sets what kernels that wait for flags (flags.h) need of the runtime, which reads these variables
// when it starts. Kernels are loaded at the beginning: loading one at its first launch can wait for
// the device, and would wait forever if the device runs a kernel that waits for this very one. And
// each stream, up to 32, gets a hardware queue to itself: in a shared queue, work would be held up
// behind another stream's wait. What the user has set is kept.
void PrepareForWaits() {
  static std::once_flag prepared;
  std::call_once(prepared, [] {
    setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  });
}

}  // namespace

#if LAMINA_CUDA_EMULATED
std::string_view BuiltWith() { return "emulated on the CPU"; }
#else
std::string_view BuiltWith() { return "nvcc " LAMINA_NVCC_VERSION; }
#endif

Result<int> DeviceCount() {
  PrepareForWaits();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  if (error == cudaSuccess || error == cudaErrorNoDevice)
    return NotFound("no CUDA device: this machine has none");
  return NotFound(std::string("no CUDA device: ") + cudaGetErrorString(error) +
                  "; nvidia-smi shows whether there is one and which driver it has");
}

Result<DeviceInfo> DescribeDevice(int device) {
  LAMINA_ASSIGN_OR_RETURN(const int count, DeviceCount());
  if (device < 0 || device >= count) {
    return NotFound("no CUDA device " + std::to_string(device) + "; there are 0 to " +
                    std::to_string(count - 1));
  }
  // cudaMemGetInfo is about the thread's current device.
  int before = 0;
  LAMINA_RETURN_IF_ERROR(AsStatus(cudaGetDevice(&before), "cudaGetDevice"));
  LAMINA_RETURN_IF_ERROR(UseDevice(device));
  cudaDeviceProp properties;
  size_t free_bytes = 0, total_bytes = 0;
  const Status described =
      AsStatus(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  const Status measured = AsStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  LAMINA_RETURN_IF_ERROR(UseDevice(before));
  LAMINA_RETURN_IF_ERROR(described);
  LAMINA_RETURN_IF_ERROR(measured);
  DeviceInfo info;
  info.name = properties.name;
  info.memory_bytes = static_cast<int64_t>(total_bytes);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  return info;
}

Status UseDevice(int device) {
  static thread_local int used = -1;  // repeated calls are free
  if (used == device) return OkStatus();
  PrepareForWaits();
  LAMINA_RETURN_IF_ERROR(AsStatus(cudaSetDevice(device), "cudaSetDevice"));
  // Any call that works with the device initialises it; this one does nothing else.
  LAMINA_RETURN_IF_ERROR(AsStatus(cudaFree(nullptr), "the CUDA device could not be made ready"));
  used = device;
  return OkStatus();
}

Result<int64_t> FreeDeviceBytes() {
  size_t free_bytes = 0, total_bytes = 0;
  LAMINA_RETURN_IF_ERROR(AsStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo"));
  return static_cast<int64_t>(free_bytes);
}

Result<std::unique_ptr<Stream>> Stream::Create() {
  // Non-blocking: it does not wait for the default stream.
  cudaStream_t handle = nullptr;
  LAMINA_RETURN_IF_ERROR(
      AsStatus(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreate"));
  return std::unique_ptr<Stream>(new Stream(handle));
}

Stream::~Stream() {
  cudaStreamSynchronize(HandleOf(*this));
  cudaStreamDestroy(HandleOf(*this));
}

Status Stream::Synchronize() {
  Keep(cudaStreamSynchronize(HandleOf(*this)), "the CUDA device failed", *this);
  return failure_;
}

void Stream::Fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

Result<std::unique_ptr<Event>> Event::Create() {
  cudaEvent_t handle = nullptr;
  LAMINA_RETURN_IF_ERROR(
      AsStatus(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming), "cudaEventCreate"));
  return std::unique_ptr<Event>(new Event(handle));
}

Event::~Event() { cudaEventDestroy(static_cast<cudaEvent_t>(handle_)); }

void Event::Record(Stream& stream) {
  Keep(cudaEventRecord(static_cast<cudaEvent_t>(handle_), HandleOf(stream)), "cudaEventRecord",
       stream);
}

void Event::HoldBack(Stream& stream) {
  Keep(cudaStreamWaitEvent(HandleOf(stream), static_cast<cudaEvent_t>(handle_), 0),
       "cudaStreamWaitEvent", stream);
}

bool Event::Reached() const {
  // Any other error counts as reached, or a caller that polls would poll forever.
  return cudaEventQuery(static_cast<cudaEvent_t>(handle_)) != cudaErrorNotReady;
}

Status Event::Wait() const {
  return AsStatus(cudaEventSynchronize(static_cast<cudaEvent_t>(handle_)),
                  "the CUDA device failed");
}

template <>
Result<DeviceBuffer> DeviceBuffer::Create(size_t size_bytes) {
  void* data = nullptr;
  // An empty buffer is no allocation.
  const cudaError_t error = size_bytes > 0 ? cudaMalloc(&data, size_bytes) : cudaSuccess;
  if (error == cudaErrorMemoryAllocation) return OutOfMemory(size_bytes);
  LAMINA_RETURN_IF_ERROR(AsStatus(error, "cudaMalloc"));
  return DeviceBuffer(data, size_bytes);
}

template <>
void DeviceBuffer::Free() {
  if (data_ != nullptr) cudaFree(data_);
}

template <>
Result<PinnedBuffer> PinnedBuffer::Create(size_t size_bytes) {
  void* data = nullptr;
  if (size_bytes > 0 && cudaHostAlloc(&data, size_bytes, cudaHostAllocDefault) != cudaSuccess) {
    cudaGetLastError();
    return OutOfSpace("no " + Megabytes(size_bytes) +
                      " of pinned memory could be had; ulimit -l may limit it");
  }
  return PinnedBuffer(data, size_bytes);
}

template <>
void PinnedBuffer::Free() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

Result<std::unique_ptr<PinnedRange>> PinnedRange::Create(void* data, size_t size_bytes) {
  const cudaError_t error = cudaHostRegister(data, size_bytes, cudaHostRegisterDefault);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return OutOfSpace(Megabytes(size_bytes) +
                      " of memory could not be pinned; ulimit -l may limit it");
  }
  if (error != cudaSuccess) {
    cudaGetLastError();
    return InvalidArgument(Megabytes(size_bytes) +
                           " of memory could not be pinned: " + cudaGetErrorString(error));
  }
  return std::unique_ptr<PinnedRange>(new PinnedRange(data));
}

PinnedRange::~PinnedRange() { cudaHostUnregister(data_); }

void CopyToDevice(void* device, const void* host, size_t size_bytes, Stream& stream) {
  if (size_bytes == 0) return;
  Keep(cudaMemcpyAsync(device, host, size_bytes, cudaMemcpyHostToDevice, HandleOf(stream)),
       "a copy to the device", stream);
}

void CopyToHost(void* host, const void* device, size_t size_bytes, Stream& stream) {
  if (size_bytes == 0) return;
  Keep(cudaMemcpyAsync(host, device, size_bytes, cudaMemcpyDeviceToHost, HandleOf(stream)),
       "a copy to the host", stream);
}

void CopyOnDevice(void* to, const void* from, size_t size_bytes, Stream& stream) {
  if (size_bytes == 0) return;
  Keep(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToDevice, HandleOf(stream)),
       "a copy on the device", stream);
}

void FillOnDevice(void* device, unsigned char byte, size_t size_bytes, Stream& stream) {
  if (size_bytes == 0) return;
  Keep(cudaMemsetAsync(device, byte, size_bytes, HandleOf(stream)), "cudaMemset", stream);
}

}  // namespace lamina::cuda
