// The KvCache of a device that is only modelled: tables, but no K or V. Values that are written are
// never read, and which tokens were written is not tracked: Readable succeeds for a token that
// never came.
#pragma once

#include "kernels/kv_cache.h"
#include "kernels/kv_tables.h"

namespace lamina {

// Thread: one owner.
class ModelledKvCache final : public KvCache {
 public:
  // `layers`: as KvTables'.
  explicit ModelledKvCache(int64_t capacity_tokens, ElasticLayers* layers = nullptr)
      : tables_(/*num_layers=*/0, capacity_tokens, layers) {}

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
                     StepId step) override {
    return tables_.Append(sequence, position, slots, step);
  }
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
                                              int64_t num_tokens) const override;

 private:
  KvTables tables_;
};

}  // namespace lamina
