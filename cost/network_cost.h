// What attention costs the network when the KV cache is on other nodes than the weights: bytes per
// row, and the bandwidth that they need (Lamina, section 4.2, extended to grouped heads). Pure
// functions.
#pragma once

#include "cost/cost_model.h"

namespace lamina {

// What one row sends in one layer, in bytes.
struct RowBytes {
  double to_memory = 0;    // q, k and v
  double from_memory = 0;  // the output
  double both() const { return to_memory + from_memory; }
};

// q and the output have `wire_element_bytes` per element; k and v have heads.dtype, as they are
// stored. With e bytes everywhere, d = num_heads * head_dim and G heads per kv head the sum is
// e (d + 2 d / G + d).
RowBytes AttentionRowBytes(const AttentionHeads& heads, double wire_element_bytes);

// A link between two nodes. GB are 10^9 bytes; the bandwidth is that of each direction.
struct Link {
  double latency_seconds = 0;
  double gb_per_s = 0;  // 0: bytes take no time

  double Seconds(double bytes) const {
    return latency_seconds + (gb_per_s > 0 ? bytes * 1e-9 / gb_per_s : 0);
  }
};

// The bandwidth at which `bytes` take no longer than `seconds`, the time of the work that hides
// them. The paper's minimum interconnect bandwidth is that for the bytes of a step in both
// directions and the time of its linear layers. REQUIRES: seconds > 0.
inline double NeededGbPerS(double bytes, double seconds) { return bytes / seconds * 1e-9; }

// Bytes of K and V of one token in all layers.
int64_t KvBytesPerToken(const AttentionHeads& heads, int num_layers);

}  // namespace lamina
