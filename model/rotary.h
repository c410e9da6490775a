// The frequencies of the rotary embedding, and how they are rescaled for contexts that are longer
// than those that a model was first trained with.
#pragma once

#include <vector>

namespace lamina {

// "rope_scaling" or "rope_parameters" of config.json. The fields have the meaning of the keys whose
// names they resemble; each kind uses those that stand below it.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kYarn, kLongRope };
  Kind kind = Kind::kNone;
  // kLinear: what frequencies are divided by. Also of kLlama3 and kYarn.
  double factor = 1;
  // kLlama3, as Llama 3.1 does.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // Positions that the model was first trained with. Also of kYarn.
  double original_max_positions = 8192;
  // kYarn (Peng et al., "YaRN", 2023, section 3.2).
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the bounds of the ramp are rounded to whole pairs
  // kLongRope (Ding et al., "LongRoPE", 2024): what each frequency is divided by, [rotary_dim / 2].
  std::vector<double> divisors = {};

  // What the rotated elements are multiplied by, after the rotation, in q and in k.
  double attention_factor = 1;
};

// Frequencies for pairs of the rotary_dim elements of a head that are rotated, [rotary_dim / 2], in
// radians per position: theta^(-2j / rotary_dim) ("RoFormer", section 3.2.2), rescaled. REQUIRES:
// theta > 1 for kYarn.
std::vector<float> InverseFrequencies(double theta, int rotary_dim, const RopeScaling& scaling);

}  // namespace lamina
