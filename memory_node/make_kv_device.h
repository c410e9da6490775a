// Makes the KvDevice that a memory node is started with: --device cpu, cuda:N or modelled:NAME.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/worker_team.h"
#include "kernels/token_slab.h"
#include "memory_node/kv_device.h"
#include "memory_node/memory_node_options.h"

namespace lamina {

// Whether the device is there and has the memory that the options say, of which host_memory_bytes
// lie in the host's memory. To be asked at the start, before any model is known. kInvalidArgument
// if a modelled device has less memory, if the device is no GPU and host_memory_bytes is not 0, or
// if host_memory_bytes is more than memory_bytes. For a GPU also kUnimplemented in a build without
// CUDA, kNotFound if there is no such GPU, and kOutOfSpace if it has less memory free.
// kUnimplemented if layers are to lie on a disk and the device is not the CPU.
Status CheckKvDevice(const MemoryNodeOptions& options);

// How many tokens of this shape the options' memory has room for; may be 0. kInvalidArgument if
// layers lie outside, and too few for the buffers.
Result<int64_t> KvCapacityTokens(const MemoryNodeOptions& options, const KvShape& shape);

// Makes the options' device, with room for `capacity_tokens` tokens. host_memory_bytes of the KV,
// rounded up to whole layers, lie in the host's memory; only for a GPU. Borrows the team, which
// attends if the device is the CPU. kOutOfSpace if the memory, or the disk, cannot be had;
// kInvalidArgument if the shape or the capacity is not supported; kUnimplemented for a GPU in a
// build without CUDA.
Result<std::unique_ptr<KvDevice>> MakeKvDevice(const MemoryNodeOptions& options,
                                               const KvShape& shape, int64_t capacity_tokens,
                                               WorkerTeam& team);

}  // namespace lamina
