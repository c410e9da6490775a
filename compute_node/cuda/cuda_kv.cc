#include "compute_node/cuda/cuda_kv.h"

#include <utility>

#include "kernels/attention.h"

namespace lamina {

// Consecutive rows are written by one call. A row that failed ends such a run, because its k and v
// lie between those of its neighbours.
void CudaKv::Write(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
                   Failures& failures) {
  const size_t width =
      static_cast<size_t>(shape_.num_kv_heads) * static_cast<size_t>(shape_.head_dim);
  size_t first = 0;
  slots_.clear();
  const auto write = [&](size_t end) {
    cache_->Write(values.layer, values.k + first * width, values.v + first * width, DType::kF32,
                  slots_);
    slots_.clear();
    first = end + 1;
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!failures.contains(rows[i].sequence)) {
      Result<TokenSlot> slot =
          cache_->Claim(values.layer, rows[i].sequence, rows[i].position, step);
      if (slot.ok()) {
        slots_.push_back(*slot);
        continue;
      }
      failures.emplace(rows[i].sequence, slot.status());
    }
    write(i);
  }
  write(rows.size());
}

void CudaKv::Attend(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
                    Failures& failures) {
  const int layer = values.layer;
  stream_.Enter();
  Write(values, step, rows, failures);
  const int64_t window = windows_.empty() ? 0 : windows_[static_cast<size_t>(layer)];
  attended_.assign(rows.size(), {});  // rows that have failed attend to nothing
  for (size_t i = 0; i < rows.size(); ++i) {
    if (failures.contains(rows[i].sequence)) continue;
    const Result<std::span<const TokenSlot>> slots =
        cache_->Readable(layer, rows[i].sequence, rows[i].position + 1);
    if (slots.ok())
      attended_[i] = InWindow(*slots, window);
    else
      failures.emplace(rows[i].sequence, slots.status());
  }
  cache_->Attend(shape_, layer, {.q = values.q, .out = values.out}, attended_);
}

}  // namespace lamina
