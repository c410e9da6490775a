// Which elements of a tensor the part that a WeightRef names has.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/weight_format.h"
#include "model/graph.h"

namespace lamina {

inline const std::vector<int64_t>& WholeShape(const WeightRef& weight) {
  return weight.whole.empty() ? weight.shape : weight.whole;
}

// The row, or column, of the whole tensor at which the part begins.
inline int64_t FirstOf(const WeightRef& weight, size_t dimension) {
  return weight.first.empty() ? 0 : weight.first[dimension];
}

// The row of the whole tensor that is row `row` of the part.
inline int64_t RowOf(const WeightRef& weight, int64_t row) {
  const auto& [size, step] = weight.blocks;
  return FirstOf(weight, 0) + (size > 0 ? row / size * step + row % size : row);
}

// Sets the groups of a matrix that begins at `first_input` of a whole one of `whole_inputs`, whose
// scales are for `inputs_per_scale` each, or all. Scales are repeated where the part begins amid a
// group; where groups would become too small for the kernels, inputs name theirs.
void SetGroups(int64_t inputs_per_scale, int64_t first_input, int64_t whole_inputs,
               WeightFormat& format);

}  // namespace lamina
