// A model's weights in the memory of a GPU, in the dtypes of the checkpoint (vectors as fp32),
// found by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "compute_node/compute_device.h"
#include "compute_node/weight_reader.h"
#include "kernels/cuda/host/staged_stream.h"
#include "kernels/cuda/linear.h"

namespace lamina {

// Immutable once loaded. Owns the device memory.
class CudaWeights final : public DeviceWeights {
 public:
  // Copies every weight, or part of a weight, that the graph names from the checkpoint to the
  // device. kOutOfSpace, with what the weights need and what the device has free, if they do not
  // fit; other errors are those of WeightReader (weight_reader.h).
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

  int64_t size_bytes() const { return size_bytes_; }  // as stored in the checkpoint

 private:
  CudaWeights() = default;
  void Take(const FoundWeight& found, cuda::StagedStream& stream);

  cuda::DeviceBuffer memory_;  // of all weights
  size_t used_ = 0;            // bytes of memory_, while loading
  int64_t size_bytes_ = 0;
  std::unordered_map<std::string, cuda::LinearWeights> matrices_;
  std::unordered_map<std::string, const float*> vectors_;
  std::unordered_map<std::string, Table> tables_;
};

}  // namespace lamina
