// OpenBLAS, if this machine has it: what linear layers are compared with. It is loaded at run time,
// so that nothing needs it to build.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace lamina {

// Sizes of y = x W^T.
struct LinearSizes {
  int64_t rows, out_features, in_features;
};

// Thread: owner, for OpenBLAS as a whole.
class OpenBlas {
 public:
  // Uses AVX-512 where our kernels do, unless OPENBLAS_CORETYPE says otherwise. Call it before
  // threads are pinned, as OpenBLAS starts its threads here. kNotFound, naming the package, if
  // libopenblas.so.0 is not installed.
  static Result<std::unique_ptr<OpenBlas>> Load();

  // "OpenBLAS 0.3.21 SkylakeX", for example.
  const std::string& description() const { return description_; }

  // y = x W^T, by sgemv for one row, else by sgemm. x: [rows, in_features], weights: [out_features,
  // in_features], y: [rows, out_features].
  void Linear(const LinearSizes& sizes, const float* weights, const float* x, float* y) const;

  void SetNumThreads(int num_threads) const { set_num_threads_(num_threads); }

 private:
  using Gemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                        const float* a, int lda, const float* b, int ldb, float beta, float* c,
                        int ldc);
  using Gemv = void (*)(int order, int trans, int m, int n, float alpha, const float* a, int lda,
                        const float* x, int incx, float beta, float* y, int incy);

  OpenBlas() = default;

  Gemm gemm_ = nullptr;
  Gemv gemv_ = nullptr;
  void (*set_num_threads_)(int) = nullptr;
  std::string description_;
};

}  // namespace lamina
