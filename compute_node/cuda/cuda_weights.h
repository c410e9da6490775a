// A model's weights in the memory of a GPU, in the dtypes of the checkpoint (vectors as fp32) or
// quantized as they are there, found by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/compute_device.h"
#include "compute_node/cuda/cuda_weight_ring.h"
#include "compute_node/weight_reader.h"
#include "kernels/cuda/host/staged_stream.h"
#include "kernels/cuda/linear.h"

namespace lamina {

// Immutable once loaded. Owns the device memory.
class CudaWeights final : public DeviceWeights {
 public:
  class Loading;

  // Loads every weight that the graph names. Errors are those of Loading.
  static Result<std::unique_ptr<CudaWeights>> Load(const Graph& graph, const ModelConfig& config,
                                                   const WeightOptions& options,
                                                   cuda::StagedStream& stream);

  struct Table {
    const void* data = nullptr;  // [rows, dim]
    DType dtype = DType::kBF16;
  };
  // A matrix, a vector (fp32), or the rows of an embedding table, in device memory. REQUIRES: the
  // graph names the weight in that role.
  const cuda::LinearWeights& Matrix(const WeightRef& weight) const {
    return matrices_.at(weight.id());
  }
  const float* Vector(const WeightRef& weight) const { return vectors_.at(weight.id()); }
  Table Rows(const WeightRef& weight) const { return tables_.at(weight.id()); }

  // Null if all weights are in the GPU's memory. Otherwise the matrices of a slice may be used only
  // by kernels that are launched while it is entered there.
  CudaWeightRing* ring() const { return ring_.get(); }

  void SetInterval(int interval) override {
    if (ring_ != nullptr) ring_->SetInterval(interval);
  }
  // The most of cuda::LinearWeights::num_places of any quantized matrix.
  int64_t most_places() const { return most_places_; }
  int64_t size_bytes() const { return size_bytes_; }  // as stored in the checkpoint

 private:
  CudaWeights() = default;
  Status Take(const FoundWeight& found, cuda::StagedStream& stream);
  Status TakeMatrix(const FoundWeight& found, cuda::StagedStream& stream);
  std::byte* NextPlace(size_t bytes);

  cuda::DeviceBuffer memory_;   // of all weights
  size_t used_ = 0;             // bytes of memory_, while loading
  cuda::DeviceBuffer scratch_;  // of UploadQuantized, while loading
  int64_t most_places_ = 0;
  int64_t size_bytes_ = 0;
  std::unique_ptr<CudaWeightRing> ring_;
  std::unordered_map<std::string, cuda::LinearWeights> matrices_;
  std::unordered_map<std::string, const float*> vectors_;
  std::unordered_map<std::string, Table> tables_;
};

// Weights on their way to the device, one after the other. Thread: one owner.
class CudaWeights::Loading {
 public:
  // Some slices' matrices lie outside the device's memory.
  struct InTurns {
    const SlicedModel& model;
    SliceRange range;
    const OffloadOptions& offload;
  };
  // Begins to copy every weight, or part of a weight, that the graph names from the checkpoint to
  // the device. Borrows the config and the stream. kOutOfSpace, with what the weights need and what
  // the device has free, if they do not fit; other errors, also of Continue, are those of
  // WeightReader (weight_reader.h). With `in_turns`, which may be null, also those of
  // CudaWeightRing.
  static Result<Loading> Start(const Graph& graph, const ModelConfig& config,
                               const WeightOptions& options, cuda::StagedStream& stream,
                               const InTurns* in_turns = nullptr);

  // Lets `team` unpack codes of GGUF files, instead of the thread that reads. Borrows it.
  void UnpackOn(WorkerTeam& team) { reader_.UnpackOn(team); }

  // As those of Weights::Loading (weights.h).
  Result<bool> Continue();
  WeightsProgress progress() const { return reader_.progress(); }
  std::unique_ptr<CudaWeights> Take() { return std::move(weights_); }

 private:
  Loading(WeightReader reader, cuda::StagedStream& stream)
      : reader_(std::move(reader)), stream_(&stream), weights_(new CudaWeights()) {}

  WeightReader reader_;
  cuda::StagedStream* stream_;
  std::unique_ptr<CudaWeights> weights_;
};

}  // namespace lamina
