#include "model/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lamina {
namespace {

// Frequencies of long wavelengths are divided by the factor, those of short ones are kept, those
// between are blended.
double RescaledAsLlama3(double frequency, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > s.original_max_positions / s.low_freq_factor) return frequency / s.factor;
  if (wavelength < s.original_max_positions / s.high_freq_factor) return frequency;
  const double kept = (s.original_max_positions / wavelength - s.low_freq_factor) /
                      (s.high_freq_factor - s.low_freq_factor);
  return (1 - kept) * frequency / s.factor + kept * frequency;
}

// The pairs between which YaRN goes over from frequencies that it keeps to those that it divides.
struct YarnRamp {
  double first = 0, last = 0;
};
YarnRamp YarnRampOf(double theta, int rotary_dim, const RopeScaling& s) {
  // The pair that turns `rotations` times within the positions of the first training.
  const auto pair_of = [&](double rotations) {
    return rotary_dim * std::log(s.original_max_positions / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  YarnRamp ramp{pair_of(s.beta_fast), pair_of(s.beta_slow)};
  if (s.truncate) ramp = {std::floor(ramp.first), std::ceil(ramp.last)};
  ramp = {std::max(ramp.first, 0.0), std::min(ramp.last, rotary_dim - 1.0)};
  // A ramp of no length would divide by zero.
  if (ramp.first == ramp.last) ramp.last += 0.001;
  return ramp;
}

}  // namespace

std::vector<float> InverseFrequencies(double theta, int rotary_dim, const RopeScaling& scaling) {
  const bool is_yarn = scaling.kind == RopeScaling::Kind::kYarn;
  const YarnRamp ramp = is_yarn ? YarnRampOf(theta, rotary_dim, scaling) : YarnRamp();
  const auto rescaled = [&](size_t pair, double frequency) {
    switch (scaling.kind) {
      case RopeScaling::Kind::kNone: return frequency;
      case RopeScaling::Kind::kLinear: return frequency / scaling.factor;
      case RopeScaling::Kind::kLlama3: return RescaledAsLlama3(frequency, scaling);
      case RopeScaling::Kind::kYarn: {
        const double at = (static_cast<double>(pair) - ramp.first) / (ramp.last - ramp.first);
        const double divided = std::clamp(at, 0.0, 1.0);
        return frequency * (1 - divided) + frequency / scaling.factor * divided;
      }
      case RopeScaling::Kind::kLongRope: return frequency / scaling.divisors[pair];
    }
    return frequency;
  };
  std::vector<float> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t pair = 0; pair < frequencies.size(); ++pair) {
    const double exponent = 2 * static_cast<double>(pair) / rotary_dim;
    frequencies[pair] = static_cast<float>(rescaled(pair, std::pow(theta, -exponent)));
  }
  return frequencies;
}

}  // namespace lamina
