#include "memory_node/cpu_kv_device.h"

#include "kernels/elementwise.h"

namespace lamina {

void CpuKvDevice::Attend(const AttentionShape& shape, int layer, DType dtype,
                         std::span<const KvQuery> rows) {
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
    rows_.push_back({converts ? queries_.data() + at : reinterpret_cast<const float*>(row.q),
                     row.slots.data(), std::ssize(row.slots),
                     converts ? out_.data() + at : reinterpret_cast<float*>(row.out), row.lse});
  }
  Attention(shape, store_->View(layer), rows_, team_);
  for (size_t i = 0; converts && i < rows.size(); ++i)
    ConvertFromFloat(rows_[i].out, width, dtype, rows[i].out);
}

void CpuKvDevice::AttendMore(const AttentionShape& shape, int layer, DType dtype,
                             std::span<const KvQuery> rows) {
  const auto num_heads = static_cast<size_t>(shape.num_heads),
             head_dim = static_cast<size_t>(shape.head_dim), width = num_heads * head_dim;
  const size_t row_bytes = width * ElementSize(dtype);
  // Holds outputs in `dtype`. No dtype has larger elements than fp32.
  more_.resize(rows.size() * width);
  more_lse_.resize(rows.size() * num_heads);
  merged_.resize(2 * width);  // the two rows that are merged
  std::byte* const more = reinterpret_cast<std::byte*>(more_.data());
  more_rows_.clear();
  for (size_t i = 0; i < rows.size(); ++i)
    more_rows_.push_back(
        {rows[i].q, rows[i].slots, more + i * row_bytes, more_lse_.data() + i * num_heads});
  Attend(shape, layer, dtype, more_rows_);
  for (size_t i = 0; i < rows.size(); ++i) {
    float *const into = merged_.data(), *const from = into + width;
    ConvertToFloat(rows[i].out, dtype, static_cast<int64_t>(width), into);
    ConvertToFloat(more_rows_[i].out, dtype, static_cast<int64_t>(width), from);
    for (size_t head = 0; head < num_heads; ++head) {
      const size_t at = head * head_dim;
      MergePartial({into + at, head_dim}, rows[i].lse[head], {from + at, head_dim},
                   more_rows_[i].lse[head]);
    }
    ConvertFromFloat(into, static_cast<int64_t>(width), dtype, rows[i].out);
  }
}

}  // namespace lamina
