// What the operators of slices do with weights, and which weights are of one slice alone, so that
// they can come and go with it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "splitter/model_share.h"
#include "splitter/slices.h"

namespace lamina {

// What operators do with a weight: multiply by it, take it element by element, or look rows up.
enum class WeightRole { kMatrix, kVector, kTable };

// Which of these an operator does with one of its weights.
WeightRole RoleOf(const Op& op, const WeightRef& weight);

// The slice of each matrix, by WeightRef::id, that no other slice of `range` and no lookup uses.
std::map<std::string, int> SlicesOfMatrices(const SlicedModel& model, SliceRange range);

// [slices of `range`] The bytes of these matrices as they are stored, plain ones at `dtype`. Of
// each slice those that OutsideByPortion (offload_options.h) picks for `portion`.
std::vector<int64_t> BlockBytes(const SlicedModel& model, SliceRange range, DType dtype,
                                double portion = 1);

}  // namespace lamina
