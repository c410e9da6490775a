#include "kernels/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

namespace lamina::reference {
namespace {

// Attention of one row and query head in two passes over its tokens: the scores and their maximum,
// then the weighted sum of V.
void AttendHead(const AttentionShape& shape, const KvView& kv, const AttentionRow& row, int head) {
  const int kv_head = head / shape.group();
  const auto at = [&](int64_t token) {
    return kv_head * kv.head_stride + int64_t{row.slots[token]} * kv.slot_stride;
  };
  const auto scale = [&](const float* scales, int64_t token) {
    return HasScales(kv.dtype) ? double{scales[kv_head * kv.scale_head_stride +
                                               int64_t{row.slots[token]} * kv.scale_slot_stride]}
                               : 1.0;
  };
  std::vector<double> weights(static_cast<size_t>(row.num_tokens));
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t t = 0; t < row.num_tokens; ++t) {
    double score = 0;
    for (int d = 0; d < shape.head_dim; ++d)
      score += double{row.q[head * shape.head_dim + d]} * At(kv.k, kv.dtype, at(t) + d);
    score *= shape.scale * scale(kv.k_scales, t);
    if (shape.soft_cap > 0) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
    weights[static_cast<size_t>(t)] = score;
    max = std::max(max, score);
  }
  // Scores are taken relative to their maximum, so that exp cannot overflow.
  for (double& w : weights) sum += w = std::exp(w - max);
  for (int d = 0; d < shape.head_dim; ++d) {
    double value = 0;
    for (int64_t t = 0; t < row.num_tokens; ++t)
      value +=
          weights[static_cast<size_t>(t)] * At(kv.v, kv.dtype, at(t) + d) * scale(kv.v_scales, t);
    row.out[head * shape.head_dim + d] =
        row.num_tokens == 0 ? 0.0f : static_cast<float>(value / sum);
  }
  // Without tokens max is -inf and sum is 0, which gives the -inf that is promised.
  if (row.lse != nullptr) row.lse[head] = static_cast<float>(max + std::log(sum));
}

}  // namespace

float At(const void* array, DType dtype, int64_t i) {
  const auto* p =
      static_cast<const std::byte*>(array) + i * static_cast<int64_t>(ElementSize(dtype));
  if (dtype == DType::kF32) {
    float x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  const auto byte = std::to_integer<uint8_t>(*p);
  if (dtype == DType::kF8 || dtype == DType::kF8Scaled) return ToFloat(F8{byte});
  if (dtype == DType::kI8Scaled) return static_cast<float>(static_cast<int8_t>(byte));
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));  // p need not be aligned
  return dtype == DType::kBF16 ? ToFloat(BF16{bits}) : ToFloat(F16{bits});
}

void Linear(const void* weights, DType dtype, const LinearShape& shape, const float* x,
            const float* bias, float* y) {
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t o = 0; o < shape.out_features; ++o) {
      float sum = 0;
      for (int64_t i = 0; i < shape.in_features; ++i) {
        sum = std::fma(x[r * shape.in_features + i], At(weights, dtype, o * shape.in_features + i),
                       sum);
      }
      y[r * shape.out_features + o] = bias == nullptr ? sum : sum + bias[o];
    }
  }
}

namespace {

// E2M1: a sign, two bits of an exponent with bias 1, and a bit of the mantissa.
float F4Number(uint8_t code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const float size = exponent == 0
                         ? 0.5f * static_cast<float>(mantissa)
                         : std::ldexp(1 + 0.5f * static_cast<float>(mantissa), exponent - 1);
  return (code & 8) != 0 ? -size : size;
}

}  // namespace

std::vector<float> Dequantize(const QuantizedMatrix& m) {
  std::vector<float> weights(m.codes.size());
  for (int64_t o = 0; o < m.out_features; ++o) {
    for (int64_t i = 0; i < m.in_features; ++i) {
      const auto at = static_cast<size_t>(o * m.in_features + i),
                 group = static_cast<size_t>(o * m.num_groups() + m.GroupOf(i));
      const uint8_t code = m.codes[at];
      const float number = m.format.code == WeightCode::kF8     ? ToFloat(F8{code})
                           : m.format.code == WeightCode::kF4   ? F4Number(code)
                           : m.format.code == WeightCode::kInt8 ? static_cast<int8_t>(code)
                                                                : code;
      float offset = 0;
      if (m.format.offset == WeightOffset::kMinus8) offset = -8 * m.scales[group];
      if (m.format.offset == WeightOffset::kZero) offset = -(m.scales[group] * m.zeros[group]);
      if (m.format.offset == WeightOffset::kMinimum) offset = m.minima[group];
      weights[at] = std::fma(number, m.scales[group], offset);
    }
  }
  return weights;
}

void Attention(const AttentionShape& shape, const KvView& kv, std::span<const AttentionRow> rows) {
  for (const AttentionRow& row : rows) {
    for (int head = 0; head < shape.num_heads; ++head) AttendHead(shape, kv, row, head);
  }
}

float RoundWithScale(const float* x, int64_t n, DType dtype, void* codes) {
  const bool is_f8 = dtype == DType::kF8Scaled;
  const float most = is_f8 ? 448.0f : 127.0f;
  auto* const to = static_cast<uint8_t*>(codes);
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    finite = finite && std::isfinite(x[i]);
    largest = std::max(largest, std::abs(x[i]));
  }
  const float scale = largest / most;
  if (!finite || scale == 0) {
    std::fill_n(to, n, uint8_t{0});
    return finite ? 0 : std::numeric_limits<float>::quiet_NaN();
  }
  for (int64_t i = 0; i < n; ++i) {
    const float ratio = std::clamp(x[i] / scale, -most, most);
    // nearbyint rounds halves to the even integer.
    to[i] =
        is_f8 ? ToF8(ratio).bits : static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(ratio)));
  }
  return scale;
}

void Embedding(const void* table, DType dtype, int64_t dim, std::span<const TokenId> tokens,
               float* y) {
  for (TokenId token : tokens) {
    for (int64_t d = 0; d < dim; ++d) *y++ = At(table, dtype, token * dim + d);
  }
}

void RmsNorm(const float* x, const float* weight, float eps, int64_t rows, int64_t dim, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t d = 0; d < dim; ++d) squares += double{x[r * dim + d]} * x[r * dim + d];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (int64_t d = 0; d < dim; ++d)
      y[r * dim + d] = static_cast<float>(x[r * dim + d] * scale * weight[d]);
  }
}

void LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int64_t rows,
               int64_t dim, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += dim, y += dim) {
    double mean = 0, squares = 0;
    for (int64_t d = 0; d < dim; ++d) mean += x[d] / static_cast<double>(dim);
    for (int64_t d = 0; d < dim; ++d) squares += (x[d] - mean) * (x[d] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + eps);
    const int64_t set = r % weights.sets * dim;
    for (int64_t d = 0; d < dim; ++d) {
      y[d] = static_cast<float>((x[d] - mean) * scale * weights.weight[set + d] +
                                weights.bias[set + d]);
    }
  }
}

void Rope(const float* x, std::span<const int32_t> positions, std::span<const float> inv_freq,
          const RopeShape& shape, float* y) {
  const int half = shape.rotary_dim / 2;
  for (int32_t position : positions) {
    for (int h = 0; h < shape.num_heads; ++h, x += shape.head_dim, y += shape.head_dim) {
      for (int j = 0; j < half; ++j) {
        // The product is rounded to fp32 before it is widened: PyTorch forms the angle so.
        const double angle = static_cast<float>(position) * inv_freq[static_cast<size_t>(j)];
        const int first = shape.interleaved ? 2 * j : j,
                  second = shape.interleaved ? 2 * j + 1 : j + half;
        const double a = x[first], b = x[second];
        y[first] = static_cast<float>(shape.scale * (a * std::cos(angle) - b * std::sin(angle)));
        y[second] = static_cast<float>(shape.scale * (b * std::cos(angle) + a * std::sin(angle)));
      }
      for (int j = shape.rotary_dim; j < shape.head_dim; ++j) y[j] = x[j];
    }
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = static_cast<float>(gate[i] / (1 + std::exp(-double{gate[i]})) * up[i]);
}

void SwigluOai(const float* gate, const float* up, float limit, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const double g = std::min(double{gate[i]}, double{limit});
    const double u = std::clamp(double{up[i]}, -double{limit}, double{limit});
    y[i] = static_cast<float>(g / (1 + std::exp(-1.702 * g)) * (u + 1));
  }
}

void GeluMul(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const double x = gate[i];
    const double gelu =
        x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    y[i] = static_cast<float>(gelu * up[i]);
  }
}

void Gelu(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i)
    // 1 + erf(z) is erfc(-z), which keeps its digits where z is far below 0.
    y[i] = static_cast<float>(double{x[i]} / 2 * std::erfc(-double{x[i]} / std::numbers::sqrt2));
}

void Relu(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::isnan(x[i]) ? x[i] : std::max(x[i], 0.0f);
}

void Scale(const float* x, float factor, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

void SoftCap(const float* x, float cap, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(cap * std::tanh(double{x[i]} / cap));
}

void SigmoidGate(const float* gate, const float* x, int64_t rows, int64_t dim, float* y) {
  for (int64_t i = 0; i < rows * dim; ++i)
    y[i] = static_cast<float>(x[i] / (1 + std::exp(-double{gate[i / dim]})));
}

void GrowByPosition(const float* x, std::span<const int32_t> positions,
                    const PositionGrowth& growth, int64_t dim, float* y) {
  for (size_t row = 0; row < positions.size(); ++row) {
    const double steps =
        std::floor((static_cast<double>(positions[row]) + 1) / double{growth.period});
    const double factor = 1 + double{growth.scale} * std::log(1 + steps);
    for (int64_t d = 0; d < dim; ++d) *y++ = static_cast<float>(*x++ * factor);
  }
}

void Add(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

}  // namespace lamina::reference
