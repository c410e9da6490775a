// Attention over KV on the compute node itself: CpuKv keeps it in this machine's memory, and
// LocalAttention is the attention of a cluster without memory nodes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/worker_team.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/compute_device.h"
#include "kernels/kv_store.h"

namespace lamina {

// KV in this machine's memory, with attention on its cores. Decode and prefill use the same code,
// so both give the same bits. Borrows the team. Thread: one owner.
class CpuKv final : public LocalKv {
 public:
  CpuKv(const AttentionShape& shape, const AttentionLayers& layers, std::unique_ptr<KvStore> store,
        WorkerTeam& team);

  KvCache& cache() override { return *store_; }
  void Attend(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
              Failures& failures) override;

 private:
  // To the rows of scratch_, whose attention is there.
  void AddSinks(std::span<const float> sinks);

  const AttentionShape shape_;
  const AttentionLayers layers_;
  const std::unique_ptr<KvStore> store_;
  WorkerTeam& team_;
  std::vector<AttentionRow> scratch_;
  std::vector<float> lse_;  // scratch: [rows, num_heads], if there are sinks
};

// The attention of a cluster without memory nodes, and of the engine in one process.
// AttentionWork::slot says where the KV of each row goes. Attention is complete when Start returns.
// Thread: one owner.
class LocalAttention final : public AttentionStrategy {
 public:
  LocalAttention(std::unique_ptr<LocalKv> kv, int num_batches)
      : kv_(std::move(kv)), steps_(static_cast<size_t>(num_batches), Step(*kv_)) {}

  Capabilities capabilities() const override { return {.own_kv = &kv_->cache()}; }
  AttentionStep& Begin(const AttentionRows& rows) override;
  void Release(SequenceId sequence) override { kv_->cache().Release(sequence); }
  // Nothing comes from elsewhere, so nothing is waited for.
  void Poll() override {}
  void Sleep(std::span<const int> /*fds*/, Deadline /*latest*/) override {}
  void TraceTo(StepTrace& /*trace*/) override {}
  void GiveUp() override {}
  void Lose(NodeId /*node*/, const std::string& /*why*/) override {}
  std::vector<LostNode> LostNodes() const override { return {}; }
  std::vector<PeerState> TakePeerStates() override { return {}; }
  bool suspends() const override { return false; }
  TimePoint wake_at() const override { return TimePoint::max(); }
  std::vector<DataPath> paths() const override { return {}; }

 private:
  class Step final : public AttentionStep {
   public:
    explicit Step(LocalKv& kv) : kv_(&kv) {}
    void Begin(const AttentionRows& rows);

    void StartQueries(int /*layer*/, const float* /*q*/, NodeId /*taker*/) override {}
    void Start(const AttentionValues& values) override {
      kv_->Attend(values, of_.step, of_.rows, failures_);
    }
    bool Finish() override { return true; }
    void End() override {}
    const Failures& failures() override { return failures_; }
    std::span<const SequenceId> late() const override { return {}; }
    std::span<const SuspendedNode> suspended() const override { return {}; }
    AttentionTraffic traffic() const override { return {}; }
    StepTransfer* transfer() override { return nullptr; }

   private:
    LocalKv* kv_;
    AttentionRows of_;
    Failures failures_;
  };

  const std::unique_ptr<LocalKv> kv_;
  std::vector<Step> steps_;  // by batch
};

}  // namespace lamina
