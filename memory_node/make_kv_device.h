// Makes the KvDevice that a memory node is started with: --device cpu, cuda:N or modelled:NAME.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/worker_team.h"
#include "cost/node_device.h"
#include "kernels/token_slab.h"
#include "memory_node/kv_device.h"

namespace lamina {

// Whether the device is there and has `memory_bytes` for KV, of which `host_memory_bytes` lie in
// the host's memory. To be asked at the start, before any model is known. kInvalidArgument if a
// modelled device has less memory, if the device is no GPU and host_memory_bytes is not 0, or if
// host_memory_bytes is more than memory_bytes. For a GPU also kUnimplemented in a build without
// CUDA, kNotFound if there is no such GPU, and kOutOfSpace if it has less memory free.
Status CheckKvDevice(const NodeDevice& device, int64_t memory_bytes, int64_t host_memory_bytes);

// Makes the device, with room for `capacity_tokens` tokens. `host_memory_bytes` of the KV, rounded
// up to whole layers, lie in the host's memory; only for a GPU. Borrows the team, which attends if
// the device is the CPU. kOutOfSpace if the memory cannot be had; kInvalidArgument if the shape or
// the capacity is not supported; kUnimplemented for a GPU in a build without CUDA.
Result<std::unique_ptr<KvDevice>> MakeKvDevice(const NodeDevice& device, const KvShape& shape,
                                               int64_t capacity_tokens, int64_t host_memory_bytes,
                                               WorkerTeam& team);

}  // namespace lamina
