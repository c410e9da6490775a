// The same workload in real time, to hold the simulator against: the cluster's daemons as processes
// of this machine.
#pragma once

#include "plan/simulate/simulation.h"

namespace lamina {

// Fills in requests, token_gaps and end. Prompts are not the simulator's tokens but as long.
// kInvalidArgument: options.changes, or prompts that begin alike, which only the simulator has;
// else why the daemons or a request failed.
Result<SimulationResult> Measure(const ClusterModel& cluster, const RequestTrace& workload,
                                 const SimulationOptions& options);

}  // namespace lamina
