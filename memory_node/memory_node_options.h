// What a memory node is told when it starts.
#pragma once

#include <cstdint>

#include "node/node_options.h"
#include "splitter/offload_options.h"

namespace lamina {

// Value type.
struct MemoryNodeOptions : NodeOptions {
  // For the KV cache; on a modelled device it only counts.
  int64_t memory_bytes = 0;
  // So much of it lies in the host's memory; only on a GPU.
  int64_t host_memory_bytes = 0;
  // Which of the layers' K and V lie on a disk while they are not needed; only on a CPU. With it
  // there is room for more tokens in memory_bytes.
  OffloadOptions offload = {};
};

}  // namespace lamina
