// How the weights of a linear layer are stored: as floating-point numbers, or as codes of 4 or 8
// bits with scales ("quantized").
//
// A quantized weight IS the fp32 number fma(code, scale, offset): the code times its scale plus its
// offset, rounded once. Where a checkpoint has zero points, offset = -(scale * zero), rounded once;
// where it has minima, the offset is the minimum. With scales of 16 bits and zero points of 8 the
// offset is exact, and so the weight is scale * (code - zero) rounded once. This is a definition
// and no approximation: a layer gives the same bits as one that holds these numbers in fp32.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace lamina {

enum class WeightCode : uint8_t {
  kNone,  // no code: a number of `dtype`
  kInt4,  // 0 to 15
  kInt8,  // -128 to 127
  kF8,    // E4M3 (base/dtype.h)
  // E2M1 (OCP Microscaling Formats, 1.0, section 5.3.3): the highest of 4 bits is the sign, the
  // others choose from 0, 0.5, 1, 1.5, 2, 3, 4 and 6.
  kF4,
};

constexpr bool HasFourBits(WeightCode code) {
  return code == WeightCode::kInt4 || code == WeightCode::kF4;
}

enum class WeightOffset : uint8_t {
  kNone,     // 0
  kMinus8,   // -8 * scale: codes of 4 bits around 0
  kZero,     // -(scale * zero), a zero point of 8 bits for each scale
  kMinimum,  // a number for each scale, of the same type
};

struct WeightFormat {
  // Plain weights. Implicit: a dtype is a format.
  constexpr WeightFormat(DType plain) : dtype(plain) {}  // NOLINT(google-explicit-constructor)
  constexpr WeightFormat(WeightCode codes, DType scales, int64_t inputs_per_scale,
                         WeightOffset offsets = WeightOffset::kNone)
      : dtype(scales), code(codes), offset(offsets), group(inputs_per_scale) {}

  bool is_quantized() const { return code != WeightCode::kNone; }
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;

  DType dtype;  // of plain weights, or of scales and minima
  WeightCode code = WeightCode::kNone;
  WeightOffset offset = WeightOffset::kNone;
  // An output has a scale for each so many consecutive inputs, a multiple of 8; the last group may
  // be shorter. 0: one scale for all inputs. Not used if `indexed`.
  int64_t group = 0;
  // Instead, each input names its group, of which there are num_groups.
  bool indexed = false;
  int64_t num_groups = 0;

  // Scales of each output.
  [[gnu::always_inline]] int64_t NumGroups(int64_t in_features) const {
    return indexed ? num_groups : group == 0 ? 1 : (in_features + group - 1) / group;
  }
};

// A quantized matrix in plain order, as it comes from a checkpoint.
struct QuantizedMatrix {
  WeightFormat format = DType::kF32;
  int64_t out_features = 0, in_features = 0;
  std::vector<uint8_t> codes = {};     // [out_features, in_features], a byte each
  std::vector<float> scales = {};      // [out_features, groups], numbers that format.dtype holds
  std::vector<int8_t> zeros = {};      // [out_features, groups] with kZero, else empty
  std::vector<float> minima = {};      // [out_features, groups] with kMinimum, else empty
  std::vector<int32_t> group_of = {};  // [in_features] if format.indexed, else empty

  int64_t num_groups() const { return format.NumGroups(in_features); }
  // The group of an input.
  int64_t GroupOf(int64_t input) const {
    return format.indexed      ? group_of[static_cast<size_t>(input)]
           : format.group == 0 ? 0
                               : input / format.group;
  }
};

}  // namespace lamina
