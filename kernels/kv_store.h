// The KV cache in this machine's memory: a slab of token slots plus, for each sequence, the table
// of the slots that hold its tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/kv_cache.h"
#include "kernels/kv_tables.h"
#include "kernels/token_slab.h"

namespace lamina {

// Owns the slab and the tables. Thread: one owner.
class KvStore final : public KvCache {
 public:
  // Errors are those of TokenSlab::Create. A thread gives the memory its pages meanwhile.
  static Result<std::unique_ptr<KvStore>> Create(const KvShape& shape, int64_t capacity_tokens);

  // The same with layers that are not all in memory at a time, see TokenSlab::CreateIn. REQUIRES:
  // their pitch is no less than the capacity.
  static Result<std::unique_ptr<KvStore>> CreateIn(std::unique_ptr<LayerMemory> layers,
                                                   const KvShape& shape, int64_t capacity_tokens);

  const KvShape& shape() const { return slab_->shape(); }

  int64_t capacity_tokens() const override { return tables_.capacity_tokens(); }
  const ElasticLayers* elastic_layers() const override { return tables_.elastic_layers(); }
  Status SetLayersInside(int num_layers) override { return tables_.SetLayersInside(num_layers); }
  int64_t used_tokens() const override { return tables_.used_tokens(); }
  int64_t num_sequences() const override { return tables_.num_sequences(); }
  std::vector<SequenceId> sequences() const override { return tables_.sequences(); }
  int64_t NumWritten(SequenceId sequence) const override { return tables_.NumWritten(sequence); }
  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step) override {
    return tables_.Append(sequence, position, slots, step);
  }
  Status AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                     StepId step) override;
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) override {
    return tables_.Share(sequence, slots, step);
  }
  void Truncate(SequenceId sequence, int64_t num_tokens) override {
    tables_.Truncate(sequence, num_tokens);
  }
  void Release(SequenceId sequence) override { tables_.Release(sequence); }
  Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v,
                  StepId step) override;
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const override {
    return tables_.Readable(layer, sequence, num_tokens);
  }

  // Does what WriteRaw does for K and V in fp32, which it rounds. k, v: [num_kv_heads, head_dim].
  Status Write(int layer, SequenceId sequence, int64_t position, const float* k, const float* v,
               StepId step);

  // One layer of the slab, as kernels see it. Valid as long as the store, or, where layers are not
  // all in memory, until another layer is used.
  KvView View(int layer) const { return slab_->View(layer); }

 private:
  KvStore(std::unique_ptr<TokenSlab> slab, int64_t capacity_tokens, ElasticLayers* layers)
      : slab_(std::move(slab)), tables_(slab_->shape().num_layers, capacity_tokens, layers) {}

  std::unique_ptr<TokenSlab> slab_;
  KvTables tables_;
};

}  // namespace lamina
