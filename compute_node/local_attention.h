// Attention over KV on the compute node itself: CpuKv keeps it in this machine's memory, and
// LocalAttention is the attention backend of a cluster without memory nodes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/worker_team.h"
#include "compute_node/attention_backend.h"
#include "compute_node/compute_device.h"
#include "kernels/kv_store.h"

namespace lamina {

// KV in this machine's memory, with attention on its cores. Decode and prefill use the same code,
// so both give the same bits. Borrows the team. Thread: one owner.
class CpuKv final : public LocalKv {
 public:
  CpuKv(const AttentionShape& shape, const std::vector<int64_t>& windows,
        std::unique_ptr<KvStore> store, WorkerTeam& team);

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
  void Attend(int layer, StepId step, std::span<const AttentionWork> rows, const float* q,
              const float* k, const float* v, float* out, Failures& failures) override;

 private:
  const AttentionShape shape_;
  const std::vector<int64_t> windows_;  // by layer; see ComputeDevice::MakeKv
  const std::unique_ptr<KvStore> store_;
  WorkerTeam& team_;
  std::vector<AttentionRow> scratch_;
};

// The backend of a cluster without memory nodes, and of the engine in one process.
// AttentionWork::slot says where the KV of each row goes. Attention is complete when Start returns.
// Thread: one owner.
class LocalAttention : public AttentionBackend {
 public:
  LocalAttention(std::unique_ptr<LocalKv> kv, int num_batches)
      : kv_(std::move(kv)), batches_(static_cast<size_t>(num_batches)) {}

  void BeginStep(int batch, StepId step, std::span<const AttentionWork> rows) override;
  void Start(int batch, int layer, const float* q, const float* k, const float* v,
             float* out) override;
  bool Finish(int /*batch*/) override { return true; }
  void EndStep(int /*batch*/) override {}
  void Sleep(std::span<const int> /*fds*/, Deadline /*latest*/) override {}
  Status AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                     StepId step) override {
    return kv_->AppendDummy(sequence, position, slots, step);
  }
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) override {
    return kv_->Share(sequence, slots, step);
  }
  void Release(SequenceId sequence) override { kv_->Release(sequence); }
  const Failures& failures(int batch) const override {
    return batches_[static_cast<size_t>(batch)].failures;
  }

 private:
  struct Batch {
    StepId step;
    std::span<const AttentionWork> rows;
    Failures failures;
  };

  const std::unique_ptr<LocalKv> kv_;
  std::vector<Batch> batches_;
};

}  // namespace lamina
