#include "compute_node/weight_part.h"

#include <numeric>

namespace lamina {

void SetGroups(int64_t inputs_per_scale, int64_t first_input, int64_t whole_inputs,
               WeightFormat& format) {
  format.group = inputs_per_scale == 0 ? 0 : std::gcd(inputs_per_scale, first_input);
  constexpr int64_t kMultiple = 8;  // weight_format.h
  if (format.group % kMultiple == 0) return;
  format.indexed = true;
  format.group = 0;
  format.num_groups = (whole_inputs + inputs_per_scale - 1) / inputs_per_scale;
}

}  // namespace lamina
