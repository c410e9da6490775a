// What the kernel tests share: instruction sets to run on, random inputs, comparisons bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/worker_team.h"
#include "kernels/cpu_features.h"
#include "kernels/linear.h"
#include "kernels/reference/reference.h"

namespace lamina {

inline std::vector<CpuIsa> SupportedIsas() {
  std::vector<CpuIsa> isas;
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (CpuSupports(isa)) isas.push_back(isa);
  }
  return isas;
}

constexpr DType kAllDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};  // of weights and values
constexpr DType kKvDTypes[] = {DType::kF32, DType::kBF16,     DType::kF16,
                               DType::kF8,  DType::kI8Scaled, DType::kF8Scaled};
constexpr DType kKvDTypesWithoutScales[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF8};
constexpr DType kKvDTypesWithScales[] = {DType::kI8Scaled, DType::kF8Scaled};

// Runs a scope on one instruction set.
class WithIsa {
 public:
  explicit WithIsa(CpuIsa isa) : before_(ActiveCpuIsa()) { SetCpuIsa(isa); }
  ~WithIsa() { SetCpuIsa(before_); }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;

 private:
  CpuIsa before_;
};

inline std::vector<float> RandomFloats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(n);
  for (float& v : values) v = uniform(random);
  return values;
}

// `values` in `dtype`, element by element with the conversions of base/dtype.h.
inline std::vector<std::byte> Encode(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * ElementSize(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[i * 4], &values[i], 4);
    } else if (dtype == DType::kF8) {
      bytes[i] = std::byte{ToF8(values[i]).bits};
    } else {
      const uint16_t bits = dtype == DType::kBF16 ? ToBF16(values[i]).bits : ToF16(values[i]).bits;
      std::memcpy(&bytes[i * 2], &bits, 2);
    }
  }
  return bytes;
}

// K or V of one token as a row of KvRowBytes, with the scales of the reference. values:
// [num_kv_heads, head_dim].
inline std::vector<std::byte> EncodeRow(const std::vector<float>& values, int num_kv_heads,
                                        DType dtype) {
  if (!HasScales(dtype)) return Encode(values, dtype);
  const size_t head_dim = values.size() / static_cast<size_t>(num_kv_heads);
  std::vector<std::byte> row(values.size() + static_cast<size_t>(num_kv_heads) * sizeof(float));
  for (size_t h = 0; h < static_cast<size_t>(num_kv_heads); ++h) {
    const float scale = reference::RoundWithScale(
        &values[h * head_dim], static_cast<int64_t>(head_dim), dtype, &row[h * head_dim]);
    std::memcpy(&row[values.size() + h * sizeof(scale)], &scale, sizeof(scale));
  }
  return row;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The largest |a - b| / (1 + |b|); NaN counts as infinite.
inline double LargestError(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double error = std::abs(double{a[i]} - b[i]) / (1 + std::abs(double{b[i]}));
    if (!(error <= largest)) largest = std::isnan(error) ? INFINITY : error;
  }
  return largest;
}

// Linear of all rows in x, [rows, in_features].
inline std::vector<float> RunLinear(const PackedWeights& weights, const std::vector<float>& x,
                                    const float* bias, WorkerTeam& team) {
  const int64_t rows = static_cast<int64_t>(x.size()) / weights.in_features();
  std::vector<float> y(static_cast<size_t>(rows * weights.out_features()), NAN);
  Linear(weights, x.data(), rows, bias, y.data(), team);
  return y;
}

}  // namespace lamina
