// KV in this machine's memory, attention on its cores.
#pragma once

#include <memory>
#include <vector>

#include "base/worker_team.h"
#include "kernels/kv_store.h"
#include "memory_node/kv_device.h"

namespace lamina {

class CpuKvDevice final : public KvDevice {
 public:
  // Borrows the team.
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
  // Rows that are not fp32 are converted on their way in and out, as the kernels know no other
  // queries.
  void Attend(const AttentionShape& shape, int layer, DType dtype,
              std::span<const KvQuery> rows) override;
  void AttendMore(const AttentionShape& shape, int layer, DType dtype,
                  std::span<const KvQuery> rows) override;

 private:
  const std::unique_ptr<KvStore> store_;
  WorkerTeam& team_;
  std::vector<AttentionRow> rows_;               // scratch
  std::vector<float> queries_, out_;             // likewise
  std::vector<float> more_, more_lse_, merged_;  // likewise, of AttendMore
  std::vector<KvQuery> more_rows_;               // likewise
};

}  // namespace lamina
