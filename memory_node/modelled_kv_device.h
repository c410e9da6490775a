// A KvDevice that stands for a device of the catalog (cost/device_catalog.h) which this machine
// does not have. It keeps the tables but no K or V, and Attend takes the time that the roofline of
// that device gives.
#pragma once

#include "base/device_timeline.h"
#include "base/dtype.h"
#include "cost/device_catalog.h"
#include "kernels/kv_tables.h"
#include "memory_node/kv_device.h"

namespace lamina {

// Attend computes nothing: outputs are whatever their memory holds. Which tokens were written is
// not tracked, so Readable succeeds for a token that never came. Thread: one owner.
class ModelledKvDevice final : public KvDevice {
 public:
  // `dtype` is that of the KV cache that the device would hold.
  ModelledKvDevice(const DeviceSpec& device, DType dtype, int64_t capacity_tokens)
      : device_(device), dtype_(dtype), tables_(/*num_layers=*/0, capacity_tokens) {}

  int64_t capacity_tokens() const override { return tables_.capacity_tokens(); }
  int64_t used_tokens() const override { return tables_.used_tokens(); }
  int64_t num_sequences() const override { return tables_.num_sequences(); }

  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step) override {
    return tables_.Append(sequence, position, slots, step);
  }
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) override {
    return tables_.Share(sequence, slots, step);
  }
  void Release(SequenceId sequence) override { tables_.Release(sequence); }
  Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v,
                  StepId step) override;
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const override;
  void Attend(const AttentionShape& shape, int layer, DType dtype,
              std::span<const KvQuery> rows) override;
  void AttendMore(const AttentionShape& shape, int layer, DType dtype,
                  std::span<const KvQuery> rows) override {
    Attend(shape, layer, dtype, rows);
  }

 private:
  // kCorrupt if the sequence has no token at `position`; kNotFound if it is unknown or its table
  // was started after `step`.
  Status CheckHolds(SequenceId sequence, int64_t position, StepId step);

  const DeviceSpec device_;
  const DType dtype_;
  KvTables tables_;
  DeviceTimeline timeline_;
};

}  // namespace lamina
