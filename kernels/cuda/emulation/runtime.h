// The functions of the CUDA runtime that lamina uses, for kernels that are emulated on the CPU
// (emulation/simt.h). Two devices with their memory on the host's heap, where AddressSanitizer
// watches it; fresh memory is full of NaN.
//
// Streams are lazy: what they are told is done when somebody waits for it, or asks whether it is
// done. So a caller that forgets to wait reads what was there before. Kernels that wait for other
// streams or processes need streams that go on by themselves: SetStreamsRunAhead.
//
// Names, arguments and errors are those of the CUDA Runtime API (NVIDIA, "CUDA Runtime API",
// modules Device, Stream, Event, Memory and Graph Management). Thread: any; of lazy streams one at
// a time runs.
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
  int major;
  int minor;
  int multiProcessorCount;
};

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocDefault = 0;
inline constexpr unsigned cudaHostRegisterDefault = 0;

// Of the last failure of a launch, in words; else the error's name.
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
// cudaErrorInvalidValue if one end is not in the memory that `kind` says.
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

// What a stream is told between Begin and End is kept in a graph. Waiting for the stream or its
// events, events and copies from and to the host are refused in between, and so is then the end;
// CUDA allows more.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);

namespace lamina::cuda::emulation {

// Adds `work` to the stream; it returns "" or what went wrong, which is then the stream's failure.
void Enqueue(cudaStream_t stream, std::function<std::string()> work);

// Whether streams that are made from now on have a thread each, which does at once what they are
// told, beside other streams. At first that is so if LAMINA_EMULATED_STREAMS is "threads". Without
// it no memory can be shared with other processes (emulation/driver.h), as nobody would do what
// they wait for.
void SetStreamsRunAhead(bool ahead);
bool StreamsRunAhead();

// For emulation/driver.cc: [memory, memory + bytes) is the current device's from now on, until it
// is forgotten.
void AddDeviceMemory(void* memory, size_t bytes);
void ForgetDeviceMemory(void* memory);

}  // namespace lamina::cuda::emulation
