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
  // kOutOfSpace if the device has no room for the sinks.
  static Result<std::unique_ptr<CudaKv>> Create(const AttentionShape& shape,
                                                const AttentionLayers& layers,
                                                std::unique_ptr<cuda::KvCache> cache,
                                                cuda::StagedStream& stream);

  KvCache& cache() override { return *cache_; }
  void Attend(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
              Failures& failures) override;

 private:
  CudaKv(const AttentionShape& shape, const AttentionLayers& layers,
         std::unique_ptr<cuda::KvCache> cache, cuda::StagedStream& stream)
      : shape_(shape), layers_(layers), cache_(std::move(cache)), stream_(stream) {}
  void Write(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
             Failures& failures);

  const AttentionShape shape_;
  const AttentionLayers layers_;
  const std::unique_ptr<cuda::KvCache> cache_;
  cuda::StagedStream& stream_;
  cuda::DeviceBuffer sinks_;                          // [layers, num_heads], if there are some
  cuda::DeviceBuffer lse_;                            // [rows, num_heads], if there are sinks
  std::vector<TokenSlot> slots_;                      // scratch
  std::vector<std::span<const TokenSlot>> attended_;  // scratch
};

}  // namespace lamina
