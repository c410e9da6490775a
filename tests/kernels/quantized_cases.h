// Quantized matrices for tests: every format, with random codes.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "kernel_cases.h"
#include "kernels/weight_format.h"

namespace lamina {

inline std::string FormatName(const WeightFormat& format) {
  return "code " + std::to_string(static_cast<int>(format.code)) + " scales " +
         std::string(DTypeName(format.dtype)) + " offset " +
         std::to_string(static_cast<int>(format.offset)) + " group " +
         std::to_string(format.group) + (format.indexed ? " indexed" : "");
}

// `x` as the nearest number of `dtype`.
inline float NearestOf(float x, DType dtype) {
  return dtype == DType::kF16 ? ToFloat(ToF16(x)) : dtype == DType::kBF16 ? ToFloat(ToBF16(x)) : x;
}

inline QuantizedMatrix RandomMatrix(const WeightFormat& format, int64_t out, int64_t in,
                                    unsigned seed) {
  std::mt19937 random(seed);
  QuantizedMatrix m{.format = format, .out_features = out, .in_features = in};
  const auto scales = static_cast<size_t>(out * m.num_groups());
  m.codes.resize(static_cast<size_t>(out * in));
  for (uint8_t& code : m.codes) {
    code = static_cast<uint8_t>(random() % (HasFourBits(format.code) ? 16 : 256));
    if (format.code == WeightCode::kF8 && (code & 0x7f) == 0x7f) code = 0;  // NaN
  }
  for (const float scale : RandomFloats(scales, seed + 1))
    m.scales.push_back(NearestOf(0.01f * scale, format.dtype));
  if (format.offset == WeightOffset::kZero) {
    m.zeros.resize(scales);
    for (int8_t& zero : m.zeros) zero = static_cast<int8_t>(random());
  }
  if (format.offset == WeightOffset::kMinimum) {
    for (const float minimum : RandomFloats(scales, seed + 2))
      m.minima.push_back(NearestOf(minimum, format.dtype));
  }
  for (int64_t i = 0; format.indexed && i < in; ++i)
    m.group_of.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(format.num_groups)));
  return m;
}

inline std::vector<WeightFormat> QuantizedFormats() {
  using enum WeightCode;
  std::vector<WeightFormat> formats;
  for (const DType scales : kAllDTypes) {
    for (const int64_t group : {0, 8, 32, 64, 128}) {
      for (const WeightOffset offset :
           {WeightOffset::kMinus8, WeightOffset::kZero, WeightOffset::kMinimum})
        formats.emplace_back(kInt4, scales, group, offset);
      for (const WeightOffset offset : {WeightOffset::kNone, WeightOffset::kZero})
        formats.emplace_back(kInt8, scales, group, offset);
      formats.emplace_back(kF8, scales, group);
      formats.emplace_back(kF4, scales, group);
    }
    for (const WeightCode code : {kInt4, kInt8, kF8, kF4}) {
      WeightFormat indexed(code, scales, 0,
                           code == kInt4 ? WeightOffset::kZero : WeightOffset::kNone);
      indexed.indexed = true;
      indexed.num_groups = 5;
      formats.push_back(indexed);
    }
  }
  return formats;
}

}  // namespace lamina
