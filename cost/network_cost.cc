#include "cost/network_cost.h"

namespace lamina {

RowBytes AttentionRowBytes(const AttentionHeads& heads, double wire_element_bytes) {
  const double output = wire_element_bytes * heads.num_heads * heads.head_dim;
  const double kv =
      2 * static_cast<double>(ElementSize(heads.dtype)) * heads.num_kv_heads * heads.head_dim;
  return {output + kv, output};
}

int64_t KvBytesPerToken(const AttentionHeads& heads, int num_layers) {
  return 2 * static_cast<int64_t>(ElementSize(heads.dtype)) * heads.num_kv_heads * heads.head_dim *
         num_layers;
}

}  // namespace lamina
