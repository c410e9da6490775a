// The cluster that a simulation runs.
#pragma once

#include "base/status.h"
#include "tests/sim/expected.h"
#include "tests/sim/scenario.h"
#include "tests/support/virtual_cluster.h"

namespace lamina::sim {

// A cluster of this shape that serves the model of `expected`, with short time-outs. What its data
// path goes over and what takes how long is left to the caller.
Result<testing::VirtualClusterOptions> OptionsOf(const ClusterShape& shape,
                                                 const Expected& expected);

}  // namespace lamina::sim
