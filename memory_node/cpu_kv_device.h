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

  KvCache& cache() override { return *store_; }
  void Attend(const AttentionShape& shape, int layer, DType dtype,
              std::span<const KvQuery> rows) override;
  void AttendMore(const AttentionShape& shape, int layer, DType dtype,
                  std::span<const KvQuery> rows) override;
  Result<std::unique_ptr<AheadAttention>> MakeAheadAttention(const AttentionShape&,
                                                             const WireShape&) override {
    return Unimplemented("the memory node's device is no GPU");
  }

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
