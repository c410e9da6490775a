#include "kernels/elementwise.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/kernel_table.h"

namespace lamina {

void Embedding(const void* table, DType dtype, int64_t dim, std::span<const TokenId> tokens,
               float* y) {
  const int64_t row_bytes = dim * static_cast<int64_t>(ElementSize(dtype));
  for (size_t r = 0; r < tokens.size(); ++r) {
    const void* row = static_cast<const std::byte*>(table) + tokens[r] * row_bytes;
    ConvertToFloat(row, dtype, dim, y + static_cast<int64_t>(r) * dim);
  }
}

namespace {

// KernelTable::rotate for the pairs (2 j, 2 j + 1).
void RotateInterleaved(const float* x, const float* cos, const float* sin, int64_t half, float* y) {
  for (int64_t j = 0; j < half; ++j) {
    const float a = x[2 * j], b = x[2 * j + 1];
    y[2 * j] = a * cos[j] - b * sin[j];
    y[2 * j + 1] = b * cos[j] + a * sin[j];
  }
}

}  // namespace

void RmsNorm(const float* x, const float* weight, float eps, int64_t rows, int64_t dim, float* y) {
  const KernelTable& kernels = ActiveKernels();
  for (int64_t r = 0; r < rows; ++r) kernels.rms_norm(x + r * dim, weight, eps, dim, y + r * dim);
}

void Rope(const float* x, std::span<const int32_t> positions, std::span<const float> inv_freq,
          const RopeShape& shape, float* y) {
  static thread_local std::vector<float> cos, sin;  // keep their memory: no allocation per step
  const auto half = static_cast<int64_t>(inv_freq.size());
  cos.resize(inv_freq.size());
  sin.resize(inv_freq.size());
  const KernelTable& kernels = ActiveKernels();
  const auto copied = static_cast<size_t>(shape.head_dim - shape.rotary_dim) * sizeof(float);
  const auto rotate = shape.interleaved ? &RotateInterleaved : kernels.rotate;
  for (int32_t position : positions) {
    // Angles are the same for all heads of a row.
    for (size_t j = 0; j < inv_freq.size(); ++j) {
      const float angle = static_cast<float>(position) * inv_freq[j];
      cos[j] = std::cos(angle) * shape.scale;
      sin[j] = std::sin(angle) * shape.scale;
    }
    for (int h = 0; h < shape.num_heads; ++h, x += shape.head_dim, y += shape.head_dim) {
      rotate(x, cos.data(), sin.data(), half, y);
      // In place the rest of the head is there already.
      if (copied > 0 && x != y) std::memcpy(y + shape.rotary_dim, x + shape.rotary_dim, copied);
    }
  }
}

void LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int64_t rows,
               int64_t dim, float* y) {
  const KernelTable& kernels = ActiveKernels();
  const auto of = [&](const float* values, int64_t row) {
    return values == nullptr ? nullptr : values + row % weights.sets * dim;
  };
  for (int64_t r = 0; r < rows; ++r) {
    const LayerNormWeights of_row{of(weights.weight, r), of(weights.bias, r)};
    kernels.layer_norm(x + r * dim, of_row, eps, dim, y + r * dim);
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, float* y) {
  ActiveKernels().silu_mul(gate, up, n, y);
}

void SwigluOai(const float* gate, const float* up, float limit, int64_t n, float* y) {
  ActiveKernels().swiglu_oai(gate, up, limit, n, y);
}

void GeluMul(const float* gate, const float* up, int64_t n, float* y) {
  ActiveKernels().gelu_mul(gate, up, n, y);
}

void Silu(const float* x, int64_t n, float* y) { ActiveKernels().silu_mul(x, nullptr, n, y); }

void GeluTanh(const float* x, int64_t n, float* y) { ActiveKernels().gelu_mul(x, nullptr, n, y); }

void Gelu(const float* x, int64_t n, float* y) { ActiveKernels().gelu(x, n, y); }

void Relu(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];  // NaN < 0 is false: it stays
}

void Scale(const float* x, float factor, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

void SoftCap(const float* x, float cap, int64_t n, float* y) {
  ActiveKernels().soft_cap(x, cap, n, y);
}

void Add(const float* a, const float* b, int64_t n, float* y) {
  // Bound by memory, so the compiler's own vectors are enough.
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void Mul(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

void SigmoidGate(const float* gate, const float* x, int64_t rows, int64_t dim, float* y) {
  for (int64_t r = 0; r < rows; ++r)
    Scale(x + r * dim, 1 / (1 + std::exp(-gate[r])), dim, y + r * dim);
}

void GrowByPosition(const float* x, std::span<const int32_t> positions,
                    const PositionGrowth& growth, int64_t dim, float* y) {
  for (const int32_t position : positions) {
    const float steps = std::floor((static_cast<float>(position) + 1) / growth.period);
    Scale(x, std::log1p(steps) * growth.scale + 1, dim, y);
    x += dim;
    y += dim;
  }
}

void ConvertFromFloat(const float* x, int64_t n, DType dtype, void* y) {
  ActiveKernels().convert_from_float(x, n, dtype, y);
}

void ConvertToFloat(const void* x, DType dtype, int64_t n, float* y) {
  ActiveKernels().convert_to_float(x, dtype, n, y);
}

}  // namespace lamina
