// Plans in which buffer each value of the slices is kept, so that a few buffers are reused for all
// of them. The plan is made once, over the whole chain slice 0, attention 0, slice 1, ...
#pragma once

#include <cstdint>
#include <vector>

#include "splitter/slices.h"

namespace lamina {

struct BufferPlan {
  std::vector<int> buffer_of;   // [values] index into widths; -1 for tokens and positions
  std::vector<int64_t> widths;  // [buffers] elements of a row

  // REQUIRES: the value is neither tokens nor positions.
  size_t BufferOf(ValueId id) const {
    return static_cast<size_t>(buffer_of[static_cast<size_t>(id)]);
  }
};

// Values that are live at the same time get different buffers. The logits keep theirs to the end.
BufferPlan PlanBuffers(const SlicedModel& model);

}  // namespace lamina
