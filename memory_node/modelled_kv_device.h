// A KvDevice that stands for a device of the catalog (cost/device_catalog.h) which this machine
// does not have. It keeps the tables but no K or V, and Attend takes the time that the roofline of
// that device gives.
#pragma once

#include "base/device_timeline.h"
#include "base/dtype.h"
#include "cost/device_catalog.h"
#include "kernels/modelled_kv_cache.h"
#include "memory_node/kv_device.h"

namespace lamina {

// Attend computes nothing: outputs are whatever their memory holds. Thread: one owner.
class ModelledKvDevice final : public KvDevice {
 public:
  // `dtype` is that of the KV cache that the device would hold.
  ModelledKvDevice(const DeviceSpec& device, DType dtype, int64_t capacity_tokens)
      : device_(device), dtype_(dtype), cache_(capacity_tokens) {}

  KvCache& cache() override { return cache_; }
  void Attend(const AttentionShape& shape, int layer, DType dtype,
              std::span<const KvQuery> rows) override;
  void AttendMore(const AttentionShape& shape, int layer, DType dtype,
                  std::span<const KvQuery> rows) override {
    Attend(shape, layer, dtype, rows);
  }
  Result<std::unique_ptr<AheadAttention>> MakeAheadAttention(const AttentionShape&,
                                                             const WireShape&) override {
    return Unimplemented("the memory node's device is no GPU");
  }

 private:
  const DeviceSpec device_;
  const DType dtype_;
  ModelledKvCache cache_;
  DeviceTimeline timeline_;
};

}  // namespace lamina
