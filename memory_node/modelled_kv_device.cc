#include "memory_node/modelled_kv_device.h"

#include "cost/cost_model.h"

namespace lamina {

void ModelledKvDevice::Attend(const AttentionShape& shape, int, DType,
                              std::span<const KvQuery> rows) {
  AttentionLoad load;
  for (const KvQuery& row : rows) load.AddDecode(std::ssize(row.slots));
  timeline_.Run(FromSeconds(AttentionSeconds(
      device_, {shape.num_heads, shape.num_kv_heads, shape.head_dim, dtype_}, load)));
}

}  // namespace lamina
