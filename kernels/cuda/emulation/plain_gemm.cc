// Stands for cublas_gemm.cc in builds with the emulation: matrix products by plain loops.
#include <cmath>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/gemm.h"

namespace lamina::cuda {
namespace {

float ElementOf(const void* array, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(array)[i];
  return dtype == DType::kBF16 ? ToFloat(static_cast<const BF16*>(array)[i])
                               : ToFloat(static_cast<const F16*>(array)[i]);
}

// Converts x once, and each row of w once for all rows of x.
void Multiply(const Gemm::Operands& o) {
  std::vector<float> x(static_cast<size_t>(o.rows * o.in)), w(static_cast<size_t>(o.in));
  for (size_t i = 0; i < x.size(); ++i) x[i] = ElementOf(o.x, o.dtype, static_cast<int64_t>(i));
  for (int64_t out = 0; out < o.out; ++out) {
    for (int64_t i = 0; i < o.in; ++i)
      w[static_cast<size_t>(i)] = ElementOf(o.w, o.dtype, out * o.in + i);
    for (int64_t row = 0; row < o.rows; ++row) {
      const float* const x_row = x.data() + row * o.in;
      float sum = 0;
      for (int64_t i = 0; i < o.in; ++i) sum += x_row[i] * w[static_cast<size_t>(i)];
      float& y = o.y[row * o.out + out];
      y = o.add ? y + sum : sum;
    }
  }
}

class PlainGemm final : public Gemm {
 public:
  explicit PlainGemm(Stream& stream) : stream_(stream) {}

  void Run(const Operands& operands) override {
    emulation::Enqueue(static_cast<cudaStream_t>(stream_.handle()), [operands] {
      Multiply(operands);
      return std::string();
    });
  }

 private:
  Stream& stream_;
};

}  // namespace

Result<std::unique_ptr<Gemm>> Gemm::Create(Stream& stream) {
  return std::unique_ptr<Gemm>(std::make_unique<PlainGemm>(stream));
}

}  // namespace lamina::cuda
