// Attention over KV that lies on the compute node itself.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/worker_team.h"
#include "compute_node/attention_backend.h"
#include "kernels/kv_store.h"

namespace lamina {

// Stores k and v of `rows` in `store` and computes their attention over it. Row i of q, k, v, out belongs to rows[i]; rows of failed
// sequences are skipped, new failures are added. The same code serves decode and prefill, so both give the same bits. Shapes as in
// AttentionBackend::Start.
class LocalKv {
 public:
  LocalKv(const AttentionShape& shape, std::unique_ptr<KvStore> store, WorkerTeam& team);

  KvStore& store() { return *store_; }
  void Attend(int layer, StepId step, std::span<const AttentionWork> rows, const float* q, const float* k, const float* v, float* out,
              Failures& failures);

 private:
  const AttentionShape shape_;
  const std::unique_ptr<KvStore> store_;
  WorkerTeam& team_;
  std::vector<AttentionRow> scratch_;
};

// The backend of a cluster without memory nodes, and of the engine in one process. Slots come with the rows.
class LocalAttention : public AttentionBackend {
 public:
  LocalAttention(const AttentionShape& shape, std::unique_ptr<KvStore> store, WorkerTeam& team);

  void BeginStep(StepId step, std::span<const AttentionWork> rows) override;
  void Start(int layer, const float* q, const float* k, const float* v, float* out) override;
  void Finish(int layer) override;
  void EndStep() override {}
  void Release(SequenceId sequence) override;
  const Failures& failures() const override { return failures_; }

 private:
  LocalKv kv_;
  StepId step_;
  std::span<const AttentionWork> rows_;
  Failures failures_;
};

}  // namespace lamina
