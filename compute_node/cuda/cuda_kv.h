// A KV cache in the memory of the compute node's own GPU, and attention there.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compute_node/compute_device.h"
#include "kernels/cuda/host/kv_cache.h"

namespace lamina {

// Decode and prefill use the same kernels. Attend only queues the work: slices that read its output
// run behind it in the same stream. Borrows the stream. Thread: one owner.
class CudaKv final : public LocalKv {
 public:
  CudaKv(const AttentionShape& shape, const std::vector<int64_t>& windows,
         std::unique_ptr<cuda::KvCache> cache, cuda::StagedStream& stream)
      : shape_(shape), windows_(windows), cache_(std::move(cache)), stream_(stream) {}

  KvCache& cache() override { return *cache_; }
  void Attend(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
              Failures& failures) override;

 private:
  void Write(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
             Failures& failures);

  const AttentionShape shape_;
  const std::vector<int64_t> windows_;  // by layer; see ComputeDevice::MakeKv
  const std::unique_ptr<cuda::KvCache> cache_;
  cuda::StagedStream& stream_;
  std::vector<TokenSlot> slots_;                      // scratch
  std::vector<std::span<const TokenSlot>> attended_;  // scratch
};

}  // namespace lamina
