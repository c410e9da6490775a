// Values of slices live in a few reused buffers; which one holds which value is planned once, over
// the whole chain slice 0, attention 0, slice 1, ...
#pragma once

#include <cstdint>
#include <vector>

#include "splitter/slices.h"

namespace lamina {

struct BufferPlan {
  std::vector<int> buffer_of;   // [values] index into widths, -1 for tokens and positions
  std::vector<int64_t> widths;  // of each buffer: elements of a row

  // REQUIRES: neither tokens nor positions.
  size_t BufferOf(ValueId id) const {
    return static_cast<size_t>(buffer_of[static_cast<size_t>(id)]);
  }
};

// Values that are live together have different buffers; the logits keep theirs to the end.
BufferPlan PlanBuffers(const SlicedModel& model);

}  // namespace lamina
