#include "quantize/round_to_nearest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace lamina {
namespace {

// The largest magnitude of a group times these is what the codes reach to. Smaller reaches cut off
// the largest weights and are finer for all others.
constexpr int kReaches = 24;
constexpr double kLeastReach = 0.6;

float Rounded(float x, DType dtype) {
  if (dtype == DType::kBF16) return ToFloat(ToBF16(x));
  if (dtype == DType::kF16) return ToFloat(ToF16(x));
  return x;
}

// A group's codes with one scale, and how far they are from the weights.
struct Coded {
  float scale = 0;
  int zero = 0;
  double squared_error = std::numeric_limits<double>::infinity();
  std::vector<uint8_t> codes;
};

void TryScale(std::span<const float> weights, const QuantizedScheme& scheme, float scale, int zero,
              Coded& best) {
  Coded tried{.scale = scale, .zero = zero, .squared_error = 0, .codes = {}};
  tried.codes.reserve(weights.size());
  // That of a scale so tiny that it is none is infinite: all weights are 0 then.
  const float inverse = std::isfinite(1 / scale) ? 1 / scale : 0;
  const int low = scheme.code == WeightCode::kInt4 ? 0 : -128;
  const int high = scheme.code == WeightCode::kInt4 ? 15 : 127;
  for (const float weight : weights) {
    float number = 0;
    if (scheme.code == WeightCode::kF8) {
      const F8 code = ToF8(weight * inverse);
      tried.codes.push_back(code.bits);
      number = ToFloat(code) * scale;
    } else {
      const int code = std::clamp(static_cast<int>(std::lrint(weight * inverse)) + zero, low, high);
      tried.codes.push_back(static_cast<uint8_t>(code));
      number = static_cast<float>(code - zero) * scale;
    }
    tried.squared_error += static_cast<double>(weight - number) * (weight - number);
  }
  if (tried.squared_error < best.squared_error) best = std::move(tried);
}

// Codes around 0. 4 bits reach from -8 to 7.
void TryAroundZero(std::span<const float> weights, const QuantizedScheme& scheme, DType dtype,
                   double reach, Coded& best) {
  const float extreme =
      *std::ranges::max_element(weights, {}, [](float weight) { return std::abs(weight); });
  const bool is_int4 = scheme.code == WeightCode::kInt4;
  const double most = scheme.code == WeightCode::kF8 ? kMaxF8
                      : !is_int4                     ? 127
                      : extreme > 0                  ? 7
                                                     : 8;
  const auto scale = static_cast<float>(reach * std::abs(extreme) / most);
  TryScale(weights, scheme, Rounded(scale, dtype), is_int4 ? 8 : 0, best);
}

// Codes from the least weight to the largest one, of which one is 0.
void TryBetween(std::span<const float> weights, const QuantizedScheme& scheme, DType dtype,
                double reach, Coded& best) {
  const double least = reach * std::min(0.0F, std::ranges::min(weights));
  const double most = reach * std::max(0.0F, std::ranges::max(weights));
  const float scale = Rounded(static_cast<float>((most - least) / 15), dtype);
  const int zero = scale == 0 ? 0 : std::clamp(static_cast<int>(std::lrint(-least / scale)), 0, 15);
  TryScale(weights, scheme, scale, zero, best);
}

}  // namespace

std::optional<QuantizedScheme> SchemeNamed(std::string_view name) {
  QuantizedScheme scheme;
  if (name == "fp8") return QuantizedScheme{WeightCode::kF8, 0, false};
  if (!name.starts_with("w4") && !name.starts_with("w8")) return std::nullopt;
  scheme.code = name[1] == '4' ? WeightCode::kInt4 : WeightCode::kInt8;
  scheme.zero_points = name.ends_with('z');
  if (scheme.zero_points) name.remove_suffix(1);
  name.remove_prefix(2);
  if (scheme.code == WeightCode::kInt8 && scheme.zero_points) return std::nullopt;
  if (name.empty()) {
    if (scheme.code == WeightCode::kInt4) return std::nullopt;
    return scheme;
  }
  if (name != "g32" && name != "g64" && name != "g128") return std::nullopt;
  std::from_chars(name.data() + 1, name.data() + name.size(), scheme.group);
  return scheme;
}

std::string SchemeNames() {
  return "w4g32, w4g64, w4g128, with zero points w4g32z, w4g64z, w4g128z, w8, w8g32, w8g64, w8g128 "
         "or fp8";
}

Result<QuantizedMatrix> RoundToNearest(std::span<const float> weights, int64_t in_features,
                                       const QuantizedScheme& scheme, DType scale_dtype) {
  const int64_t group = scheme.group == 0 ? in_features : scheme.group;
  if (in_features < 1 || in_features % group != 0) {
    return InvalidArgument(std::to_string(in_features) + " inputs, which is no multiple of " +
                           std::to_string(group));
  }
  const WeightOffset offset = scheme.zero_points                 ? WeightOffset::kZero
                              : scheme.code == WeightCode::kInt4 ? WeightOffset::kMinus8
                                                                 : WeightOffset::kNone;
  QuantizedMatrix matrix{.format = WeightFormat(scheme.code, scale_dtype, scheme.group, offset),
                         .out_features = std::ssize(weights) / in_features,
                         .in_features = in_features};
  matrix.codes.reserve(weights.size());
  for (size_t begin = 0; begin < weights.size(); begin += static_cast<size_t>(group)) {
    const std::span<const float> of_group = weights.subspan(begin, static_cast<size_t>(group));
    if (!std::ranges::all_of(of_group, [](float weight) { return std::isfinite(weight); }))
      return InvalidArgument("a weight is not a finite number");
    Coded best;
    for (int i = 0; i < kReaches; ++i) {
      const double reach = 1 - (1 - kLeastReach) * i / (kReaches - 1);
      if (scheme.zero_points)
        TryBetween(of_group, scheme, scale_dtype, reach, best);
      else
        TryAroundZero(of_group, scheme, scale_dtype, reach, best);
    }
    matrix.codes.insert(matrix.codes.end(), best.codes.begin(), best.codes.end());
    matrix.scales.push_back(best.scale);
    if (scheme.zero_points) matrix.zeros.push_back(static_cast<int8_t>(best.zero));
  }
  return matrix;
}

}  // namespace lamina
