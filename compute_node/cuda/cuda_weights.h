// A model's weights in the memory of a GPU, as they stand in the checkpoint, found by name.
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

// Immutable once loaded.
class CudaWeights final : public DeviceWeights {
 public:
  // Copies every weight, or part of one, that the graph names from the checkpoint's mapping to the
  // device. kOutOfSpace names what they need and what the device has free. Else as WeightReader.
  static Result<std::unique_ptr<CudaWeights>> Load(const Graph& graph, const ModelConfig& config,
                                                   const WeightOptions& options,
                                                   cuda::StagedStream& stream);

  struct Table {
    const void* data = nullptr;  // [rows, dim]
    DType dtype = DType::kBF16;
  };
  // REQUIRES (all three): the graph names it in that role.
  const cuda::LinearWeights& Matrix(const WeightRef& weight) const {
    return matrices_.at(weight.id());
  }
  const float* Vector(const WeightRef& weight) const { return vectors_.at(weight.id()); }  // fp32
  Table Rows(const WeightRef& weight) const { return tables_.at(weight.id()); }

  int64_t size_bytes() const { return size_bytes_; }  // as stored in the checkpoint

 private:
  CudaWeights() = default;
  void Take(const FoundWeight& found, cuda::StagedStream& stream);

  cuda::DeviceBuffer memory_;
  size_t used_ = 0;
  int64_t size_bytes_ = 0;
  std::unordered_map<std::string, cuda::LinearWeights> matrices_;
  std::unordered_map<std::string, const float*> vectors_;
  std::unordered_map<std::string, Table> tables_;
};

}  // namespace lamina
