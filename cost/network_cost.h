// What attention costs the network when the KV cache is on other nodes than the weights (Lamina,
// section 4.2, with grouped heads). Pure functions.
#pragma once

#include "cost/cost_model.h"

namespace lamina {

// What one row sends in one layer, in bytes.
struct RowBytes {
  double to_memory = 0;    // q, k and v
  double from_memory = 0;  // the output
  double both() const { return to_memory + from_memory; }
};

// q and the output have `wire_element_bytes` per element, k and v are as they are stored. With all
// heads alike and 2 bytes everywhere that is e (3 d + d); with G heads sharing a kv head e (d + 2 d
// / G + d).
RowBytes AttentionRowBytes(const AttentionHeads& heads, double wire_element_bytes);

// A link between two nodes; GB = 10^9 bytes, in each direction.
struct Link {
  double latency_seconds = 0;
  double gb_per_s = 0;  // 0: bytes take no time

  double Seconds(double bytes) const {
    return latency_seconds + (gb_per_s > 0 ? bytes * 1e-9 / gb_per_s : 0);
  }
};

// The bandwidth at which `bytes` take no longer than the work that they hide behind: both
// directions of a step over its linear layers are the paper's minimum interconnect bandwidth.
// REQUIRES: seconds > 0.
inline double NeededGbPerS(double bytes, double seconds) { return bytes / seconds * 1e-9; }

// Bytes of K and V of one token in all layers.
int64_t KvBytesPerToken(const AttentionHeads& heads, int num_layers);

}  // namespace lamina
