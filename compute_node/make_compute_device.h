// Makes the compute device that a node is configured with.
#pragma once

#include <memory>

#include "base/status.h"
#include "compute_node/compute_device.h"
#include "cost/node_device.h"

namespace lamina {

// Borrows the team. For a GPU: kUnimplemented if this program was built without CUDA, kNotFound if
// there is no such GPU; the message says which ones there are. Nothing can lie outside a GPU's
// memory yet: kUnimplemented.
Result<std::unique_ptr<ComputeDevice>> MakeComputeDevice(const NodeDevice& device, WorkerTeam& team,
                                                         const ComputeOffload& offload = {});

}  // namespace lamina
