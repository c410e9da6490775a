// What a step takes on a device whose weights lie outside of its memory in part.
#pragma once

#include <cstdint>

#include "base/clock.h"
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

// Of layers that take turns in memory (tiers/fifo_ring.h): the fewest places with which no layer is
// waited for once the first steps are over, if each takes so long to compute, and so long to come
// or to go. num_layers if there have to be as many. REQUIRES: num_layers >= 2; both times are above
// 0.
Result<int> FewestPlacesWithoutWaits(int num_layers, Clock::duration compute, Clock::duration copy);

}  // namespace lamina
