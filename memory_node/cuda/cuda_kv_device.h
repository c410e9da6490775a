// KV in the memory of a GPU, attention there. Queries and outputs go through pinned memory, one
// copy each way per call.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/host/kv_cache.h"
#include "memory_node/kv_device.h"

namespace lamina {

// What WriteRaw stores is collected by layer and goes to the device in one piece, before that
// layer's next attention. A GPU that fails in the middle of a step ends the process. Thread: one
// owner.
class CudaKvDevice final : public KvDevice {
 public:
  // On GPU number `index`, but for `host_bytes`. Errors as cuda::StagedStream::Create and
  // cuda::KvCache::Create.
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
  // Rows of one layer that the device does not have yet; no slot twice.
  struct Collected {
    std::vector<std::byte> k, v;
    std::vector<TokenSlot> slots;
  };

  CudaKvDevice(std::unique_ptr<cuda::StagedStream> stream, std::unique_ptr<cuda::KvCache> cache)
      : stream_(std::move(stream)),
        cache_(std::move(cache)),
        collected_(static_cast<size_t>(cache_->shape().num_layers)) {}
  void WriteCollected(int layer);
  void WriteAllCollected();
  void Attend(const AttentionShape& shape, int layer, DType dtype, std::span<const KvQuery> rows,
              bool merges);

  const std::unique_ptr<cuda::StagedStream> stream_;  // before what uses it
  std::unique_ptr<cuda::StagedStream> uploads_;       // of AheadAttention; likewise
  const std::unique_ptr<cuda::KvCache> cache_;
  std::vector<Collected> collected_;        // by layer
  cuda::DeviceBuffer queries_, out_, lse_;  // scratch: of a call's rows
  // Likewise: of AttendMore, before they are merged.
  cuda::DeviceBuffer more_, more_lse_;
  std::vector<std::span<const TokenSlot>> attended_;  // likewise
};

}  // namespace lamina
