#include "compute_node/local_attention.h"

namespace lamina {

CpuKv::CpuKv(const AttentionShape& shape, const AttentionLayers& layers,
             std::unique_ptr<KvStore> store, WorkerTeam& team)
    : shape_(shape), layers_(layers), store_(std::move(store)), team_(team) {}

void CpuKv::Attend(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
                   Failures& failures) {
  const int layer = values.layer;
  const size_t q_width =
      static_cast<size_t>(shape_.num_heads) * static_cast<size_t>(shape_.head_dim);
  const size_t kv_width =
      static_cast<size_t>(shape_.num_kv_heads) * static_cast<size_t>(shape_.head_dim);
  // K and V of all rows are written before any row attends: rows of a prompt attend to each other.
  for (size_t i = 0; i < rows.size(); ++i) {
    if (failures.contains(rows[i].sequence)) continue;
    Status status = store_->Write(layer, rows[i].sequence, rows[i].position,
                                  values.k + i * kv_width, values.v + i * kv_width, step);
    if (!status.ok()) failures.emplace(rows[i].sequence, std::move(status));
  }
  scratch_.clear();
  const AttentionWindow window = layers_.WindowOf(layer);
  const std::span<const float> sinks = layers_.SinksOf(layer);
  lse_.resize(rows.size() * sinks.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (failures.contains(rows[i].sequence)) continue;
    Result<std::span<const TokenSlot>> slots =
        store_->Readable(layer, rows[i].sequence, rows[i].position + 1);
    if (!slots.ok()) {
      failures.emplace(rows[i].sequence, slots.status());
      continue;
    }
    const std::span<const TokenSlot> attended = InWindow(*slots, window);
    scratch_.push_back({values.q + i * q_width, attended.data(), std::ssize(attended),
                        values.out + i * q_width,
                        sinks.empty() ? nullptr : lse_.data() + i * sinks.size()});
  }
  Attention(shape_, store_->View(layer), scratch_, team_);
  if (!sinks.empty()) AddSinks(sinks);
}

void CpuKv::AddSinks(std::span<const float> sinks) {
  constexpr int64_t kRowsAtATime = 8;
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  team_.ParallelFor(std::ssize(scratch_), kRowsAtATime, [&](int64_t begin, int64_t end) {
    for (const AttentionRow& row : std::span(scratch_).subspan(static_cast<size_t>(begin),
                                                               static_cast<size_t>(end - begin))) {
      for (size_t head = 0; head < sinks.size(); ++head)
        AddSink({row.out + head * head_dim, head_dim}, row.lse[head], sinks[head]);
    }
  });
}

AttentionStep& LocalAttention::Begin(const AttentionRows& rows) {
  Step& step = steps_[rows.batch];
  step.Begin(rows);
  return step;
}

void LocalAttention::Step::Begin(const AttentionRows& rows) {
  of_ = rows;
  failures_.clear();
  for (const AttentionWork& row : rows.rows) {
    if (failures_.contains(row.sequence)) continue;
    Status status = kv_->cache().Append(row.sequence, row.position, {&row.slot, 1}, rows.step);
    if (!status.ok()) failures_.emplace(row.sequence, std::move(status));
  }
}

}  // namespace lamina
