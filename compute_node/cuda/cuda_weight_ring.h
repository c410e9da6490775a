// The matrices of slices that lie outside a GPU's memory (kernels/cuda/host/pinned_ring.h): one
// block for those of each slice.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute_node/weight_reader.h"
#include "kernels/cuda/host/pinned_ring.h"
#include "kernels/cuda/host/staged_stream.h"
#include "kernels/cuda/linear.h"
#include "splitter/offload_options.h"
#include "splitter/slices.h"
#include "splitter/weight_blocks.h"

namespace lamina {

// The interval is fixed. Use while loading: Create, and Store for each matrix that it Has. Then
// Enter and Leave around the kernels of each slice. Thread: the owner of the stream that it was
// created with.
class CudaWeightRing {
 public:
  // Plans the blocks of the slices of `range`, and takes pinned memory for those that lie outside
  // and device memory for the buffers. Borrows the stream. `named`: all weights, as WeightReader's
  // List gives them. Matrices that several slices use, or that are also a table, are none of its
  // own. Errors are those of FirstInterval; kOutOfSpace if there is not so much memory.
  static Result<std::unique_ptr<CudaWeightRing>> Create(
      const SlicedModel& model, SliceRange range, const std::vector<WeightReader::Named>& named,
      const OffloadOptions& options, cuda::StagedStream& stream);

  bool Has(const std::string& id) const { return matrices_.contains(id); }
  // Brings a matrix to where it lies, and returns it as it will be in its slice's buffer. `scratch`
  // is that of UploadQuantized.
  Result<cuda::LinearWeights> Store(const FoundWeight& found, cuda::DeviceBuffer& scratch);

  // Kernels that are launched between the two find the slice's matrices in their places.
  void Enter(int slice);
  void Leave(int slice);
  void AddVisitor() {}
  void RemoveVisitor() {}

  const cuda::PinnedRing& ring() const { return *ring_; }

 private:
  struct Matrix {
    size_t slice = 0;    // of the range
    int64_t offset = 0;  // in the slice's block
  };

  CudaWeightRing(SliceRange range, cuda::StagedStream& stream) : range_(range), stream_(stream) {}
  // Plans the part of a slice that may lie outside, and returns its bytes.
  int64_t PlanSlice(size_t slice, const std::vector<const WeightReader::Named*>& matrices,
                    double portion);
  // The block of a slice; none if all of it stays.
  std::optional<size_t> BlockOf(int slice) const {
    return blocks_[static_cast<size_t>(slice - range_.first)];
  }

  const SliceRange range_;
  cuda::StagedStream& stream_;
  std::map<std::string, Matrix> matrices_;     // by WeightRef::id, of slices that lie outside
  std::vector<std::optional<size_t>> blocks_;  // [slices of the range]
  std::unique_ptr<cuda::PinnedRing> ring_;
};

// What a matrix takes in a GPU's memory.
int64_t BytesOnDevice(const WeightReader::Named& matrix);

}  // namespace lamina
