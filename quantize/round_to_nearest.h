// Makes codes of a matrix: each weight is the nearest one of the numbers that its group's scale
// allows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/weight_format.h"

namespace lamina {

// What weights become. Value type.
struct QuantizedScheme {
  WeightCode code = WeightCode::kInt4;  // not kNone
  int64_t group = 0;                    // inputs that share a scale; 0: all of an output
  bool zero_points = false;             // of 4 bits: codes need not lie around 0

  int bits() const { return code == WeightCode::kInt4 ? 4 : 8; }
};

// The scheme's name: "w4g64", "w4g64z" with zero points, "w8", "w8g128", "fp8". nullopt: there is
// none of that name.
std::optional<QuantizedScheme> SchemeNamed(std::string_view name);
// What may be named, for messages.
std::string SchemeNames();

// `weights`: [out_features, in_features], row by row. Scales are numbers of `scale_dtype`, chosen
// in each group so that the sum of the squared errors is the least of some two dozen tried.
// kInvalidArgument if in_features is no multiple of the group, or a weight is not finite.
Result<QuantizedMatrix> RoundToNearest(std::span<const float> weights, int64_t in_features,
                                       const QuantizedScheme& scheme, DType scale_dtype);

}  // namespace lamina
