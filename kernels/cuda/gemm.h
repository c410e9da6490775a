// The one function of cuBLAS that lamina needs, or its emulation. Internal to
// kernels/cuda/linear.h.
#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// Multiplies matrices on one stream. Thread: the stream's owner.
class Gemm {
 public:
  // Borrows the stream. The first call in a process loads libcublas. kNotFound, saying where it was
  // looked for, if there is no libcublas or it lacks a function; kOutOfSpace if the device has no
  // memory left for cuBLAS's workspace.
  static Result<std::unique_ptr<Gemm>> Create(Stream& stream);
  virtual ~Gemm() = default;

  struct Operands {
    const void* x = nullptr;     // [rows, in] of `dtype`, device
    const void* w = nullptr;     // [out, in] of `dtype`, device
    DType dtype = DType::kBF16;  // not kF8
    int64_t rows = 0;
    int64_t in = 0;
    int64_t out = 0;
    float* y = nullptr;  // [rows, out] fp32, device
    bool add = false;    // y += x w^T, else y = x w^T
  };
  // y = x w^T, or y += x w^T, with sums in fp32.
  virtual void Run(const Operands& operands) = 0;
};

}  // namespace lamina::cuda
