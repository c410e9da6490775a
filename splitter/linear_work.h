// What the linear layers of a slice come to: weights, operations and activations, without a device.
#pragma once

#include "splitter/slices.h"

namespace lamina {

// A slice's linear layers; norms, rotations and sums ride along with them, as fused kernels do.
struct LinearWork {
  // Elements of the matrices: read once per run, 2 operations each per row.
  double weights = 0;
  // Of these the ones that a row has no part in: of experts that it does not go to.
  double unrouted = 0;
  // What each row reads and writes: inputs and outputs of the matrices, parts and sum of
  // all-reduces.
  double row_elements = 0;
};
LinearWork WorkOf(const Slice& slice, const Graph& graph);

}  // namespace lamina
