#include <cublas_v2.h>
#include <dlfcn.h>

#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/runtime.h"

namespace lamina::cuda {
namespace {

// The size that cuBLAS's documentation recommends for compute capability 9.0 (cublasSetWorkspace).
constexpr size_t kWorkspaceBytes = 32 << 20;

#define LAMINA_STRING_INNER_(x) #x
#define LAMINA_STRING_(x) LAMINA_STRING_INNER_(x)
constexpr char kSharedObject[] = "libcublas.so." LAMINA_STRING_(CUBLAS_VER_MAJOR);

// The functions of libcublas, which stays loaded as long as the process runs.
struct Cublas {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&cublasSetMathMode) set_math_mode = nullptr;
  decltype(&cublasGemmEx_64) gemm = nullptr;
  decltype(&cublasGetStatusString) status_string = nullptr;

  // Looks for the library as the system does, then in the toolkit that this was built with.
  static Result<Cublas> Load() {
    void* library = dlopen(kSharedObject, RTLD_NOW | RTLD_LOCAL);
    const std::string missing = library == nullptr ? dlerror() : "";  // before the next dlopen
    const std::string of_toolkit = std::string(LAMINA_CUDA_LIBRARY_DIR) + "/" + kSharedObject;
    if (library == nullptr) library = dlopen(of_toolkit.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      return NotFound("cuBLAS is not installed: " + missing + "; nor is it at " + of_toolkit +
                      ". LD_LIBRARY_PATH can name its folder");
    }
    Cublas found;
    const auto find = [library](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    if (find("cublasCreate_v2", found.create) && find("cublasDestroy_v2", found.destroy) &&
        find("cublasSetStream_v2", found.set_stream) &&
        find("cublasSetWorkspace_v2", found.set_workspace) &&
        find("cublasSetMathMode", found.set_math_mode) && find("cublasGemmEx_64", found.gemm) &&
        find("cublasGetStatusString", found.status_string)) {
      return found;
    }
    return NotFound(std::string(kSharedObject) + " lacks a function: " + dlerror());
  }
};

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

class CublasGemm final : public Gemm {
 public:
  CublasGemm(const Cublas& cublas, Stream& stream, DeviceBuffer workspace)
      : cublas_(cublas), stream_(stream), workspace_(std::move(workspace)) {}
  ~CublasGemm() override {
    if (handle_ != nullptr) cublas_.destroy(handle_);
  }

  // Creates the handle, for our stream and workspace.
  Status Open() {
    LAMINA_RETURN_IF_ERROR(AsStatus(cublas_.create(&handle_), "cublasCreate"));
    LAMINA_RETURN_IF_ERROR(
        AsStatus(cublas_.set_stream(handle_, static_cast<cudaStream_t>(stream_.handle())),
                 "cublasSetStream"));
    // Where cuBLAS divides a sum among blocks, partial sums stay in fp32 too.
    LAMINA_RETURN_IF_ERROR(
        AsStatus(cublas_.set_math_mode(handle_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
                 "cublasSetMathMode"));
    return AsStatus(cublas_.set_workspace(handle_, workspace_.data(), workspace_.size_bytes()),
                    "cublasSetWorkspace");
  }

  // cuBLAS takes matrices as column-major, so what is row-major here is its transpose there: this
  // computes y^T [out, rows] = w [out, in] x^T [in, rows].
  void Run(const Operands& o) override {
    const float alpha = 1, beta = o.add ? 1 : 0;
    const cudaDataType_t type = TypeOf(o.dtype);
    Status status =
        AsStatus(cublas_.gemm(handle_, CUBLAS_OP_T, CUBLAS_OP_N, o.out, o.rows, o.in, &alpha, o.w,
                              type, o.in, o.x, type, o.in, &beta, o.y, CUDA_R_32F, o.out,
                              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                 "cublasGemmEx");
    if (!status.ok()) stream_.Fail(std::move(status));
  }

 private:
  Status AsStatus(cublasStatus_t status, const char* function) const {
    return status == CUBLAS_STATUS_SUCCESS
               ? OkStatus()
               : InternalError(std::string(function) + ": " + cublas_.status_string(status));
  }

  const Cublas cublas_;
  Stream& stream_;
  const DeviceBuffer workspace_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Gemm>> Gemm::Create(Stream& stream) {
  static const Result<Cublas> cublas = Cublas::Load();
  if (!cublas.ok()) return cublas.status();
  LAMINA_ASSIGN_OR_RETURN(DeviceBuffer workspace, DeviceBuffer::Create(kWorkspaceBytes));
  auto gemm = std::make_unique<CublasGemm>(*cublas, stream, std::move(workspace));
  LAMINA_RETURN_IF_ERROR(gemm->Open());
  return std::unique_ptr<Gemm>(std::move(gemm));
}

}  // namespace lamina::cuda
