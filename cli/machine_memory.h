// How much KV cache this machine has room for.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace lamina {

struct MachineShare {
  int64_t available_bytes = 0;  // of the host's memory (AvailableHostBytes)
  double utilization = 0;       // the part of it that weights and KV cache may take, at most 1
  int64_t weight_bytes = 0;     // of all compute nodes on this machine
  int num_kv_nodes = 1;         // that keep KV cache
};

// The KV cache of each of these nodes, in whole MiB. kOutOfSpace if weights leave less than 16 MiB
// for each; the message has the figures.
Result<int64_t> KvBytesOfEachNode(const MachineShare& share);

}  // namespace lamina
