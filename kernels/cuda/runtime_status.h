// Errors of the CUDA runtime, or its emulation, as Status.
#pragma once

#include <string>

#include "base/status.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/runtime.h"

namespace lamina::cuda {

// `what` was asked of the runtime.
inline Status AsStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return OkStatus();
  cudaGetLastError();  // the runtime keeps it for whoever asks next
  return InternalError(std::string(what) + ": " + cudaGetErrorString(error));
}

// Likewise, of a stream, which keeps the failure.
inline void Keep(cudaError_t error, const char* what, Stream& stream) {
  if (error != cudaSuccess) stream.Fail(AsStatus(error, what));
}

inline cudaStream_t HandleOf(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle());
}

}  // namespace lamina::cuda
