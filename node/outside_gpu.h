// What lies outside a GPU's memory, weights or layers of a KV cache: in the host's memory.
#pragma once

#include "base/status.h"
#include "kernels/layers_outside.h"
#include "splitter/offload_options.h"

namespace lamina {

// kInvalidArgument if a folder, a rate or a bus is given, kUnimplemented if how many times the
// tokens find room is to change.
Status CheckOutsideGpu(const OffloadOptions& offload);

// Which layers lie outside, and in how many buffers they take turns: none, if nothing does.
// kInvalidArgument as SlotsForExpansion and FirstOutside. REQUIRES: CheckOutsideGpu is ok.
Result<LayersOutside> LayersOutsideOf(const OffloadOptions& offload, int num_layers);

}  // namespace lamina
