// Turns errors of the CUDA runtime, or of its emulation, into Status.
#pragma once

#include <string>

#include "base/status.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/runtime.h"

namespace lamina::cuda {

// kInternal, "<what>: <the runtime's words>", unless `error` is cudaSuccess. `what` names what the
// runtime was asked for.
inline Status AsStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return OkStatus();
  cudaGetLastError();  // clears it: the runtime would report it again to whoever asks next
  return InternalError(std::string(what) + ": " + cudaGetErrorString(error));
}

// Notes the error, if it is one, as a failure of the stream.
inline void Keep(cudaError_t error, const char* what, Stream& stream) {
  if (error != cudaSuccess) stream.Fail(AsStatus(error, what));
}

inline cudaStream_t HandleOf(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle());
}

}  // namespace lamina::cuda
