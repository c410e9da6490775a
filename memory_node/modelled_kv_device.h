// A device of the catalog that is not here: keeps the tables and no K or V, and takes the time that its roofline gives for attention.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/device_catalog.h"
#include "base/device_timeline.h"
#include "base/float16.h"
#include "memory_node/kv_device.h"

namespace lamina {

// Outputs of attention are whatever stands in their memory. What was written is not tracked: a token that never came is not missed.
class ModelledKvDevice final : public KvDevice {
 public:
  // `dtype`: of the KV cache that the device would hold.
  ModelledKvDevice(const DeviceSpec& device, DType dtype, int64_t capacity_tokens)
      : device_(device), dtype_(dtype), capacity_tokens_(capacity_tokens) {}

  int64_t capacity_tokens() const override { return capacity_tokens_; }
  int64_t used_tokens() const override { return used_tokens_; }
  int64_t num_sequences() const override { return static_cast<int64_t>(tables_.size()); }

  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots, StepId step) override;
  void Release(SequenceId sequence) override;
  Status Write(int layer, SequenceId sequence, int64_t position, const float* k, const float* v, StepId step) override;
  Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v, StepId step) override;
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence, int64_t num_tokens) const override;
  void Attend(const AttentionShape& shape, int layer, std::span<const AttentionRow> rows) override;

 private:
  struct Table {
    std::vector<TokenSlot> slots;
    StepId since;
  };

  Status CheckHolds(SequenceId sequence, int64_t position, StepId step) const;

  const DeviceSpec device_;
  const DType dtype_;
  const int64_t capacity_tokens_;
  int64_t used_tokens_ = 0;
  std::unordered_map<SequenceId, Table> tables_;
  DeviceTimeline timeline_;
};

}  // namespace lamina
