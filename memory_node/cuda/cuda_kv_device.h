// A KvDevice that keeps KV in the memory of a GPU and attends there. Queries and outputs go through
// pinned memory, in few large copies per call.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/host/kv_cache.h"
#include "memory_node/kv_device.h"

namespace lamina {

// A GPU that fails in the middle of a step ends the process. Owns the stream and the cache. Thread:
// one owner.
class CudaKvDevice final : public KvDevice {
 public:
  // Keeps the cache on GPU number `index`, except for what lies outside its memory. kOutOfSpace if
  // the device has less memory free than its part needs or the host cannot pin the other;
  // kInvalidArgument if shape or capacity are not supported; kInternal if the device cannot be
  // used.
  static Result<std::unique_ptr<KvDevice>> Create(int index, const KvShape& shape,
                                                  int64_t capacity_tokens,
                                                  const cuda::KvOutside& outside);

  KvCache& cache() override { return *cache_; }
  void Attend(const AttentionShape& shape, int layer, DType dtype,
              std::span<const KvQuery> rows) override;
  void AttendMore(const AttentionShape& shape, int layer, DType dtype,
                  std::span<const KvQuery> rows) override;
  Result<std::unique_ptr<AheadAttention>> MakeAheadAttention(const AttentionShape& shape,
                                                             const WireShape& wire) override;

 private:
  CudaKvDevice(std::unique_ptr<cuda::StagedStream> stream, std::unique_ptr<cuda::KvCache> cache)
      : stream_(std::move(stream)), cache_(std::move(cache)) {}
  // Attend, or with `merges` AttendMore.
  void Attend(const AttentionShape& shape, int layer, DType dtype, std::span<const KvQuery> rows,
              bool merges);

  // The streams are declared before the cache, which borrows them.
  const std::unique_ptr<cuda::StagedStream> stream_;
  std::unique_ptr<cuda::StagedStream> uploads_;  // for AheadAttention; null: there is none
  const std::unique_ptr<cuda::KvCache> cache_;
  // Scratch: q, output and log-sum-exp of a call's rows; for AttendMore also the output and
  // log-sum-exp over the further tokens, before they are merged.
  cuda::DeviceBuffer queries_, out_, lse_;
  cuda::DeviceBuffer more_, more_lse_;
  std::vector<std::span<const TokenSlot>> attended_;  // scratch
};

}  // namespace lamina
