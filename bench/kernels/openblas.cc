#include "bench/kernels/openblas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>

#include "kernels/cpu_features.h"

namespace lamina {
namespace {

// Values of cblas.h.
constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;

template <typename F>
bool Find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<std::unique_ptr<OpenBlas>> OpenBlas::Load() {
  // A release that is older than the CPU would use its AVX2 kernels.
  if (ActiveCpuIsa() == CpuIsa::kAvx512) setenv("OPENBLAS_CORETYPE", "SkylakeX", /*overwrite=*/0);
  // Never closed: its threads run until the process ends.
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return NotFound(std::string(dlerror()) + "; apt-get install libopenblas0-pthread has it");
  std::unique_ptr<OpenBlas> blas(new OpenBlas);
  char* (*config)() = nullptr;
  char* (*core)() = nullptr;
  if (!Find(library, "cblas_sgemm", blas->gemm_) || !Find(library, "cblas_sgemv", blas->gemv_) ||
      !Find(library, "openblas_set_num_threads", blas->set_num_threads_) ||
      !Find(library, "openblas_get_config", config) ||
      !Find(library, "openblas_get_corename", core)) {
    return NotFound("libopenblas.so.0 lacks a function: " + std::string(dlerror()));
  }
  std::istringstream words(config());
  std::string name, version;
  words >> name >> version;
  blas->description_ = name + " " + version + " " + core();
  return blas;
}

void OpenBlas::Linear(const LinearSizes& sizes, const float* weights, const float* x,
                      float* y) const {
  const auto n = static_cast<int>(sizes.out_features), k = static_cast<int>(sizes.in_features),
             m = static_cast<int>(sizes.rows);
  if (m == 1) {
    gemv_(kRowMajor, kNoTrans, n, k, 1, weights, k, x, 1, 0, y, 1);
  } else {
    gemm_(kRowMajor, kNoTrans, kTrans, m, n, k, 1, x, k, weights, k, 0, y, n);
  }
}

}  // namespace lamina
