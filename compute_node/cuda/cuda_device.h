// The compute device of a GPU of this machine, which has weights, values and KV in its memory.
// Bytes of messages move between host and GPU through pinned memory.
#pragma once

#include <memory>

#include "base/worker_team.h"
#include "compute_node/compute_device.h"
#include "compute_node/cuda/cuda_engine.h"

namespace lamina {

// If the GPU fails in the middle of a step, the process ends. Must outlive what it makes. Thread:
// one owner.
class CudaDevice final : public ComputeDevice {
 public:
  // Opens GPU number `index`. Borrows the team, which samples. `offload` says which weights of
  // models, and which layers of KV caches, lie in the host's memory. Errors are those of
  // cuda::DescribeDevice, for example if there is no such GPU, and of allocating the stream.
  static Result<std::unique_ptr<ComputeDevice>> Create(int index, WorkerTeam& team,
                                                       const ComputeOffload& offload = {});

  Result<std::unique_ptr<LoadingModel>> StartLoad(const WeightOptions& options) override;
  Result<std::unique_ptr<SliceRunner>> MakeSlices(const LoadedModel& model, int max_rows) override;
  Result<std::unique_ptr<LocalKv>> MakeKv(const AttentionShape& shape, const KvShape& kv,
                                          const AttentionLayers& layers,
                                          int64_t capacity_tokens) override;
  std::byte* Pack(std::span<const PackedParts> packed, std::byte* message) override;
  void Unpack(const std::byte* message, DType dtype, const RowParts& parts, float* value) override;
  void AddUnpacked(const std::byte* message, DType dtype, int64_t n, float* value) override;
  Result<std::unique_ptr<DeviceLink>> MakeLink(const WireShape& wire,
                                               Clock::duration limit) override;

  // Pack and Unpack for messages in memory that the device reaches. They only queue the work.
  void PackOnDevice(std::span<const PackedParts> packed, std::byte* message);
  void UnpackOnDevice(const std::byte* message, DType dtype, const RowParts& parts, float* value);

  CudaEngine& engine() { return engine_; }

 private:
  CudaDevice(std::unique_ptr<cuda::StagedStream> staged, WorkerTeam& team,
             const ComputeOffload& offload)
      : engine_(std::move(staged)), team_(team), offload_(offload) {}
  const int32_t* UploadRows(std::span<const std::span<const int>> rows);

  CudaEngine engine_;
  WorkerTeam& team_;
  const ComputeOffload offload_;
  // Scratch: a message, the rows of its parts, and what AddUnpacked adds.
  cuda::DeviceBuffer message_, rows_, sum_;
};

}  // namespace lamina
