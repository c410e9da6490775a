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

// The K and V that requests can make use of at a time.
struct KvUse {
  int64_t bytes_per_token = 0;
  int64_t max_num_seqs = 0;
  int64_t max_model_len = 0;  // tokens
  int num_kv_nodes = 1;
  int kv_head_parallel = 1;  // so many nodes have a part of the K and V of the same tokens
};

// What each node needs for it, in whole MiB and at least 16: max_num_seqs requests of max_model_len
// tokens, evenly over the nodes, and at least one such request on each.
int64_t UsefulKvBytes(const KvUse& use);

}  // namespace lamina
