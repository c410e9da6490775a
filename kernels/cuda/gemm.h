// The one function of cuBLAS that lamina needs, or its emulation: a part of kernels/cuda/linear.h.
#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

class Gemm {
 public:
  // libcublas, loaded by the first call in a process. Errors as Linear::Create's. Borrows the
  // stream.
  static Result<std::unique_ptr<Gemm>> Create(Stream& stream);
  virtual ~Gemm() = default;

  // y = x w^T, or y += x w^T with `add`, summed up in fp32. x: [rows, in] and w: [out, in] of
  // `dtype`; y: [rows, out] fp32; device memory.
  struct Operands {
    const void* x = nullptr;
    const void* w = nullptr;
    DType dtype = DType::kBF16;  // not kF8
    int64_t rows = 0;
    int64_t in = 0;
    int64_t out = 0;
    float* y = nullptr;
    bool add = false;
  };
  virtual void Run(const Operands& operands) = 0;
};

}  // namespace lamina::cuda
