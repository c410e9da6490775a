// The functions of the CUDA runtime that lamina uses, for kernels that are emulated on the CPU
// (emulation/simt.h). There are two devices. Their memory is on the host's heap, where
// AddressSanitizer watches it; fresh memory is full of NaN.
//
// Streams are lazy: work is done when someone waits for it or asks whether it is done. So a caller
// that forgets to wait reads what was there before. Kernels that wait for other streams or
// processes need streams that run on threads of their own: SetStreamsRunAhead.
//
// Names, arguments and errors are those of the CUDA Runtime API (NVIDIA, "CUDA Runtime API",
// modules Device, Stream, Event, Memory and Graph Management). Thread: any; only one lazy stream
// runs at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInsufficientDriver = 35,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3
};

struct EmulatedStream;
struct EmulatedEvent;
struct EmulatedGraph;
using cudaStream_t = EmulatedStream*;
using cudaEvent_t = EmulatedEvent*;
using cudaGraph_t = EmulatedGraph*;
using cudaGraphExec_t = EmulatedGraph*;

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem;
};

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocDefault = 0;
inline constexpr unsigned cudaHostRegisterDefault = 0;

// The error in words. For cudaErrorLaunchFailure these say what went wrong in the latest kernel
// that failed.
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);

cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
// cudaErrorInvalidValue if one end is not in the kind of memory that `kind` says.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int byte, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

// Work that is given to a stream between Begin and End is kept in a graph. In between,
// cudaStreamSynchronize, cudaStreamWaitEvent, cudaEventRecord and copies from and to the host are
// refused, and then the end is refused too. CUDA allows some of these.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);

namespace lamina::cuda::emulation {

// Adds `work` to the stream. It returns "" or what went wrong, which becomes the stream's failure.
void Enqueue(cudaStream_t stream, std::function<std::string()> work);

// Whether streams that are created from now on have a thread each, which does work at once and
// beside other streams, copies to the device slowly. The initial value is true if
// LAMINA_EMULATED_STREAMS is "threads". If it is false, memory cannot be shared with other
// processes (emulation/driver.h): no one would do the work that they wait for.
void SetStreamsRunAhead(bool ahead);
bool StreamsRunAhead();

// For emulation/driver.cc: [memory, memory + bytes) counts as memory of the current device until it
// is forgotten. Forgetting waits for all streams.
void AddDeviceMemory(void* memory, size_t bytes);
void ForgetDeviceMemory(void* memory);

}  // namespace lamina::cuda::emulation
