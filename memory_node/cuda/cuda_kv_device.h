// A KvDevice that keeps KV in the memory of a GPU and attends there. Queries and outputs go through
// pinned memory, in few large copies per call.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/host/kv_cache.h"
#include "memory_node/kv_device.h"

namespace lamina {

// WriteRaw collects rows by layer. They go to the device in one piece, at the latest before the
// layer's next attention. A GPU that fails in the middle of a step ends the process. Owns the
// stream and the cache. Thread: one owner.
class CudaKvDevice final : public KvDevice {
 public:
  // Keeps the cache on GPU number `index`, except for `host_bytes` of it, rounded up to whole
  // layers, which lie in the host's memory. kOutOfSpace if the device has less memory free than the
  // rest needs or the host cannot pin its part; kInvalidArgument if shape or capacity are not
  // supported; kInternal if the device cannot be used.
  static Result<std::unique_ptr<KvDevice>> Create(int index, const KvShape& shape,
                                                  int64_t capacity_tokens, int64_t host_bytes);

  int64_t capacity_tokens() const override { return cache_->capacity_tokens(); }
  int64_t used_tokens() const override { return cache_->used_tokens(); }
  int64_t num_sequences() const override { return cache_->num_sequences(); }

  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step) override {
    return cache_->Append(sequence, position, slots, step);
  }
  Status AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                     StepId step) override;
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) override {
    return cache_->Share(sequence, slots, step);
  }
  void Release(SequenceId sequence) override;
  Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v,
                  StepId step) override;
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const override {
    return cache_->Readable(layer, sequence, num_tokens);
  }
  void Attend(const AttentionShape& shape, int layer, DType dtype,
              std::span<const KvQuery> rows) override;
  void AttendMore(const AttentionShape& shape, int layer, DType dtype,
                  std::span<const KvQuery> rows) override;
  Result<std::unique_ptr<AheadAttention>> MakeAheadAttention(const AttentionShape& shape,
                                                             const WireShape& wire) override;

 private:
  // Rows of one layer that the device does not have yet. No slot occurs twice.
  struct Collected {
    std::vector<std::byte> k, v;  // [slots, num_kv_heads, head_dim] of the cache's dtype
    std::vector<TokenSlot> slots;
  };

  CudaKvDevice(std::unique_ptr<cuda::StagedStream> stream, std::unique_ptr<cuda::KvCache> cache)
      : stream_(std::move(stream)),
        cache_(std::move(cache)),
        collected_(static_cast<size_t>(cache_->shape().num_layers)) {}
  // Queues the writing of a layer's collected rows, or of all layers'.
  void WriteCollected(int layer);
  void WriteAllCollected();
  // Attend, or with `merges` AttendMore.
  void Attend(const AttentionShape& shape, int layer, DType dtype, std::span<const KvQuery> rows,
              bool merges);

  // The streams are declared before the cache, which borrows them.
  const std::unique_ptr<cuda::StagedStream> stream_;
  std::unique_ptr<cuda::StagedStream> uploads_;  // for AheadAttention; null: there is none
  const std::unique_ptr<cuda::KvCache> cache_;
  std::vector<Collected> collected_;  // [layers]
  // Scratch: q, output and log-sum-exp of a call's rows; for AttendMore also the output and
  // log-sum-exp over the further tokens, before they are merged.
  cuda::DeviceBuffer queries_, out_, lse_;
  cuda::DeviceBuffer more_, more_lse_;
  std::vector<std::span<const TokenSlot>> attended_;  // scratch
};

}  // namespace lamina
