// A KvDevice that keeps KV in this machine's memory and attends on its cores, with the kernels of
// kernels/attention.h.
#pragma once

#include <memory>
#include <vector>

#include "base/worker_team.h"
#include "kernels/kv_store.h"
#include "memory_node/kv_device.h"

namespace lamina {

// The kernels take fp32 queries and give fp32 outputs, so rows of another dtype are converted on
// their way in and out. Thread: one owner.
class CpuKvDevice final : public KvDevice {
 public:
  // Borrows the team, whose threads attend.
  CpuKvDevice(std::unique_ptr<KvStore> store, WorkerTeam& team)
      : store_(std::move(store)), team_(team) {}

  int64_t capacity_tokens() const override { return store_->capacity_tokens(); }
  int64_t used_tokens() const override { return store_->used_tokens(); }
  int64_t num_sequences() const override { return store_->num_sequences(); }

  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step) override {
    return store_->Append(sequence, position, slots, step);
  }
  Status AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                     StepId step) override {
    return store_->AppendDummy(sequence, position, slots, step);
  }
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) override {
    return store_->Share(sequence, slots, step);
  }
  void Release(SequenceId sequence) override { store_->Release(sequence); }
  Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v,
                  StepId step) override {
    return store_->WriteRaw(layer, sequence, position, k, v, step);
  }
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const override {
    return store_->Readable(layer, sequence, num_tokens);
  }
  void Attend(const AttentionShape& shape, int layer, DType dtype,
              std::span<const KvQuery> rows) override;
  void AttendMore(const AttentionShape& shape, int layer, DType dtype,
                  std::span<const KvQuery> rows) override;

 private:
  const std::unique_ptr<KvStore> store_;
  WorkerTeam& team_;
  // Scratch of Attend: the rows as the kernels take them, and their q and out in fp32.
  std::vector<AttentionRow> rows_;
  std::vector<float> queries_, out_;  // [rows, num_heads, head_dim]
  // Scratch of AttendMore: what Attend gives for the further tokens, and two rows to merge.
  std::vector<float> more_, more_lse_, merged_;
  std::vector<KvQuery> more_rows_;
};

}  // namespace lamina
