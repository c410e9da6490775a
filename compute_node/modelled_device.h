// A compute device of the catalog that is not here: it takes the time that the cost model gives for
// slices and attention, and computes nothing. It holds neither weights nor KV, so models of any
// size run on any machine. q, k, v and outputs have their true sizes, but no meaning.
#pragma once

#include <memory>

#include "base/device_timeline.h"
#include "compute_node/compute_device.h"
#include "cost/device_catalog.h"

namespace lamina {

// What it makes borrows its timeline, so that slices and attention take turns on the one device; it
// must outlive them. Thread: one owner.
class ModelledDevice final : public ComputeDevice {
 public:
  explicit ModelledDevice(const DeviceSpec& spec, ComputeOffload offload = {})
      : spec_(spec), offload_(std::move(offload.weights)), kv_offload_(std::move(offload.kv)) {}

  // Reads config.json alone, which takes one turn. Weights that lie outside come over the link from
  // the host, whose rate the options or the catalog say. kInvalidArgument if neither does, if the
  // device's profile cannot be fitted to the model, or is used with tensor parallelism (FitProfile,
  // CheckRanks in cost_model.h); kOutOfSpace, with both sizes, if the weights would not fit into
  // the device's memory.
  Result<std::unique_ptr<LoadingModel>> StartLoad(const WeightOptions& options) override;

  // Every row samples the lowest token that neither begins nor ends a text and is not banned for
  // the row.
  Result<std::unique_ptr<SliceRunner>> MakeSlices(const LoadedModel& model, int max_rows) override;

  Result<std::unique_ptr<LocalKv>> MakeKv(const AttentionShape& shape, const KvShape& kv,
                                          const AttentionLayers& layers,
                                          int64_t capacity_tokens) override;

  // Messages are neither written nor read here, as a real device's kernels would do that. They
  // contain whatever is in their memory.
  std::byte* Pack(std::span<const PackedParts> packed, std::byte* message) override;
  void Unpack(const std::byte*, DType, const RowParts&, float*) override {}
  void AddUnpacked(const std::byte*, DType, int64_t, float*) override {}
  Result<std::unique_ptr<DeviceLink>> MakeLink(const WireShape&, Clock::duration) override {
    return Unimplemented("the compute node's device is no GPU");
  }

 private:
  Result<std::unique_ptr<LoadedModel>> Model(const WeightOptions& options);

  DeviceSpec spec_;  // after StartLoad, its profile fits the model
  const OffloadOptions offload_, kv_offload_;
  DeviceTimeline timeline_;
};

}  // namespace lamina
