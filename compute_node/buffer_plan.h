// Plans in which buffer each value of the slices is kept, so that a few buffers are reused for all
// of them. The plan is made once, over the whole chain slice 0, attention 0, slice 1, ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "splitter/slices.h"

namespace lamina {

// The operators at the end of the last slice that make the logits of one value, row by row: a
// linear one, and those that scale its output.
struct HeadOps {
  size_t first = 0;  // in the slice's program
  ValueId input = -1;
};

// nullopt if the model's logits are made otherwise.
std::optional<HeadOps> HeadOpsOf(const SlicedModel& model);

struct BufferPlan {
  std::vector<int> buffer_of;   // [values] index into widths; -1 for tokens and positions
  std::vector<int64_t> widths;  // [buffers] elements of a row
  std::vector<bool> only_head;  // [buffers] whether nobody but HeadOpsOf's operators writes there

  // REQUIRES: the value is neither tokens nor positions.
  size_t BufferOf(ValueId id) const {
    return static_cast<size_t>(buffer_of[static_cast<size_t>(id)]);
  }
};

// Values that are live at the same time get different buffers. The logits keep theirs to the end,
// and so does what HeadOpsOf's operators read.
BufferPlan PlanBuffers(const SlicedModel& model);

}  // namespace lamina
