#include "memory_node/cpu_kv_device.h"

#include "kernels/elementwise.h"

namespace lamina {

void CpuKvDevice::Attend(const AttentionShape& shape, int layer, DType dtype, std::span<const KvQuery> rows) {
  const int64_t width = int64_t{shape.num_heads} * shape.head_dim;
  const bool converts = dtype != DType::kF32;
  if (converts) {
    queries_.resize(rows.size() * static_cast<size_t>(width));
    out_.resize(queries_.size());
  }
  rows_.clear();
  for (const KvQuery& row : rows) {
    const int64_t at = std::ssize(rows_) * width;
    if (converts) ConvertToFloat(row.q, dtype, width, queries_.data() + at);
    rows_.push_back({converts ? queries_.data() + at : reinterpret_cast<const float*>(row.q), row.slots.data(), std::ssize(row.slots),
                     converts ? out_.data() + at : reinterpret_cast<float*>(row.out), row.lse});
  }
  Attention(shape, store_->View(layer), rows_, team_);
  for (size_t i = 0; converts && i < rows.size(); ++i) ConvertFromFloat(rows_[i].out, width, dtype, rows[i].out);
}

}  // namespace lamina
