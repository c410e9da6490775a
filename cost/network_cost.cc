#include "cost/network_cost.h"

namespace lamina {

RowBytes AttentionRowBytes(const AttentionHeads& heads, double wire_element_bytes) {
  const double output = wire_element_bytes * heads.num_heads * heads.head_dim;
  const auto kv = static_cast<double>(KvBytesPerToken(heads, 1));
  return {output + kv, output};
}

int64_t KvBytesPerToken(const AttentionHeads& heads, int num_layers) {
  return 2 * KvRowBytes(heads.dtype, heads.num_kv_heads, heads.head_dim) * num_layers;
}

}  // namespace lamina
