// What a step takes on a device whose weights lie outside of its memory in part.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "cost/cost_model.h"
#include "cost/device_catalog.h"
#include "splitter/offload_options.h"
#include "splitter/slices.h"

namespace lamina {

// The work of a step.
struct StepLoad {
  int64_t rows = 0;
  int64_t sampled_rows = 0;      // for which the last slice runs
  AttentionLoad attention = {};  // of one layer, on the device itself
};

// Seconds of one of many such steps that follow each other, with nothing else on the link: the ring
// that nodes have (tiers/block_ring.h), in virtual time. Without offload the sum of slices and
// attention. kInvalidArgument as FirstInterval. REQUIRES: bytes_per_s > 0.
Result<double> OffloadedStepSeconds(const DeviceSpec& device, const SlicedModel& model,
                                    const AttentionHeads& heads, const StepLoad& load,
                                    const OffloadOptions& offload, double bytes_per_s);

}  // namespace lamina
