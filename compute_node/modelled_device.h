// A device of the catalog that is not here: takes the time that its roofline gives for slices and
// attention, and computes nothing. It holds neither weights nor KV, so models of any size run on
// any machine; q, k, v and outputs have their true sizes and no meaning.
#pragma once

#include <memory>

#include "base/device_timeline.h"
#include "compute_node/compute_device.h"
#include "cost/device_catalog.h"

namespace lamina {

// Thread: one owner. Outlives what it makes, as slices and attention wait for the same device.
class ModelledDevice final : public ComputeDevice {
 public:
  explicit ModelledDevice(const DeviceSpec& spec) : spec_(spec) {}

  // Reads config.json alone. kInvalidArgument: FitProfile, CheckRanks (cost_model.h). kOutOfSpace
  // names both sizes if the weights would not fit into the device's memory.
  Result<std::unique_ptr<LoadedModel>> Load(const WeightOptions& options) override;

  // Every row samples the lowest token that is neither the model's beginning nor an end of a text,
  // nor banned for it.
  Result<std::unique_ptr<SliceRunner>> MakeSlices(const LoadedModel& model, int max_rows) override;

  Result<std::unique_ptr<LocalKv>> MakeKv(const AttentionShape& shape, const KvShape& kv,
                                          const std::vector<int64_t>& windows,
                                          int64_t capacity_tokens) override;

  // Messages hold whatever stands in their memory: such a device's own kernels would write and read
  // them.
  std::byte* Pack(std::span<const PackedParts> packed, std::byte* message) override;
  void Unpack(const std::byte*, DType, const RowParts&, float*) override {}
  void AddUnpacked(const std::byte*, DType, int64_t, float*) override {}

 private:
  DeviceSpec spec_;  // from Load on with a profile that fits the model
  DeviceTimeline timeline_;
};

}  // namespace lamina
