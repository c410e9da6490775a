#include "compute_node/local_attention.h"

namespace lamina {

CpuKv::CpuKv(const AttentionShape& shape, const std::vector<int64_t>& windows,
             std::unique_ptr<KvStore> store, WorkerTeam& team)
    : shape_(shape), windows_(windows), store_(std::move(store)), team_(team) {}

void CpuKv::Attend(int layer, StepId step, std::span<const AttentionWork> rows, const float* q,
                   const float* k, const float* v, float* out, Failures& failures) {
  const size_t q_width =
      static_cast<size_t>(shape_.num_heads) * static_cast<size_t>(shape_.head_dim);
  const size_t kv_width =
      static_cast<size_t>(shape_.num_kv_heads) * static_cast<size_t>(shape_.head_dim);
  // K and V of all rows are written before any row attends: rows of a prompt attend to each other.
  for (size_t i = 0; i < rows.size(); ++i) {
    if (failures.contains(rows[i].sequence)) continue;
    Status status = store_->Write(layer, rows[i].sequence, rows[i].position, k + i * kv_width,
                                  v + i * kv_width, step);
    if (!status.ok()) failures.emplace(rows[i].sequence, std::move(status));
  }
  scratch_.clear();
  const int64_t window = windows_.empty() ? 0 : windows_[static_cast<size_t>(layer)];
  for (size_t i = 0; i < rows.size(); ++i) {
    if (failures.contains(rows[i].sequence)) continue;
    Result<std::span<const TokenSlot>> slots =
        store_->Readable(layer, rows[i].sequence, rows[i].position + 1);
    if (!slots.ok()) {
      failures.emplace(rows[i].sequence, slots.status());
      continue;
    }
    const std::span<const TokenSlot> attended = InWindow(*slots, window);
    scratch_.push_back(
        {q + i * q_width, attended.data(), std::ssize(attended), out + i * q_width, nullptr});
  }
  Attention(shape_, store_->View(layer), scratch_, team_);
}

void LocalAttention::BeginStep(int batch, StepId step, std::span<const AttentionWork> rows) {
  batches_[static_cast<size_t>(batch)] = {step, rows, {}};
  Failures& failures = batches_[static_cast<size_t>(batch)].failures;
  for (const AttentionWork& row : rows) {
    if (failures.contains(row.sequence)) continue;
    Status status = kv_->Append(row.sequence, row.position, {&row.slot, 1}, step);
    if (!status.ok()) failures.emplace(row.sequence, std::move(status));
  }
}

void LocalAttention::Start(int batch, int layer, const float* q, const float* k, const float* v,
                           float* out) {
  Batch& now = batches_[static_cast<size_t>(batch)];
  kv_->Attend(layer, now.step, now.rows, q, k, v, out, now.failures);
}

}  // namespace lamina
