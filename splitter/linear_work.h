// What the linear layers of a slice come to: weights, operations and activations, whatever the
// device.
#pragma once

#include "splitter/slices.h"

namespace lamina {

// The work of a slice's linear layers. Norms, rotations and sums are not counted: fused kernels do
// them along with the linear layers.
struct LinearWork {
  // Elements of the matrices. Each is read once per run and takes 2 operations per row.
  double weights = 0;
  // How many of `weights` take no operations for a row: those of experts that it is not routed to.
  double unrouted = 0;
  // How many of `weights` are stored quantized, and the bytes of those.
  double quantized = 0;
  double quantized_bytes = 0;
  // Elements that each row reads and writes: inputs and outputs of the matrices, and the parts and
  // sums of all-reduces.
  double row_elements = 0;

  bool operator==(const LinearWork&) const = default;
};
LinearWork WorkOf(const Slice& slice, const Graph& graph);

}  // namespace lamina
