// The KV device that a name stands for.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/worker_team.h"
#include "cost/node_device.h"
#include "kernels/token_slab.h"
#include "memory_node/kv_device.h"

namespace lamina {

// Whether the device is there and has that much memory, of which `host_memory_bytes` are the
// host's, before any model is known. kInvalidArgument: a modelled device has less, or only a GPU's
// KV may lie elsewhere. kUnimplemented: a GPU, and this program was built without CUDA. kNotFound:
// there is no such GPU; the message says which ones there are. kOutOfSpace: the GPU has less free.
Status CheckKvDevice(const NodeDevice& device, int64_t memory_bytes, int64_t host_memory_bytes);

// Borrows the team. `host_memory_bytes`: as CheckKvDevice, rounded up to whole layers. kOutOfSpace:
// the memory cannot be had.
Result<std::unique_ptr<KvDevice>> MakeKvDevice(const NodeDevice& device, const KvShape& shape,
                                               int64_t capacity_tokens, int64_t host_memory_bytes,
                                               WorkerTeam& team);

}  // namespace lamina
