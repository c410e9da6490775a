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

// Use while loading: Create, and Store for each matrix that it Has. Then Enter and Leave around the
// kernels of each slice. The model's head is none of its matrices: with a large vocabulary it is
// larger than all else of its slice, and every buffer would have to be as large. Thread: the owner
// of the stream that it was created with.
class CudaWeightRing {
 public:
  // Plans the blocks of the slices of `range`, and takes pinned memory for those that lie outside
  // and device memory for the buffers. Borrows the stream. `named`: all weights, as WeightReader's
  // List gives them. Matrices that several slices use, or that are also a table, are none of its
  // own. If the interval may change, all slices lie in pinned memory, and there are device buffers
  // for as many as options.memory_bytes allow. Errors are those of FirstInterval; kOutOfSpace if
  // there is not so much memory.
  static Result<std::unique_ptr<CudaWeightRing>> Create(
      const SlicedModel& model, SliceRange range, const std::vector<WeightReader::Named>& named,
      const OffloadOptions& options, cuda::StagedStream& stream);

  bool Has(const std::string& id) const { return matrices_.contains(id); }
  // Brings a matrix to where it lies. `weights` stands for it, is borrowed, and points to its place
  // from the time that its slice is entered. `scratch` is that of UploadQuantized.
  Status Store(const FoundWeight& found, cuda::LinearWeights& weights, cuda::DeviceBuffer& scratch);

  // Kernels of a slice that are launched next, until another slice is entered, find its matrices in
  // their places. Returns where these are; null if the slice has none that take turns. Also a
  // runner that goes on amid a slice calls it, since others may have been in other slices
  // meanwhile.
  const std::byte* Enter(int slice);
  // The kernels of a slice have all been launched: what comes next may take its place.
  void Leave(int slice);

  // The interval that it began with. Another one from the next Enter on, unless it is fixed or
  // there is no memory for that.
  int first_interval() const { return first_interval_; }
  void SetInterval(int interval) { wanted_interval_ = interval; }

  const cuda::PinnedRing& ring() const { return *ring_; }

 private:
  struct Matrix {
    size_t slice = 0;                        // of the range
    int64_t offset = 0;                      // in the slice's block
    cuda::LinearWeights* weights = nullptr;  // once it is stored
  };

  CudaWeightRing(SliceRange range, const OffloadOptions& options, cuda::StagedStream& stream)
      : range_(range), options_(options), stream_(stream) {}
  // Plans the part of a slice that may lie outside, and returns its bytes.
  int64_t PlanSlice(size_t slice, const std::vector<const WeightReader::Named*>& matrices);
  // Plans which slices lie outside, and makes the ring.
  Status MakeRing(const std::vector<int64_t>& slice_bytes);
  // Brings what lies outside to the interval that is wanted.
  void ChangeInterval();
  void PointTo(const Matrix& matrix, std::byte* block) const;
  // The block of a slice; none if all of it stays.
  std::optional<size_t> BlockOf(int slice) const {
    return blocks_[static_cast<size_t>(slice - range_.first)];
  }

  const SliceRange range_;
  const OffloadOptions options_;
  cuda::StagedStream& stream_;
  std::map<std::string, Matrix> matrices_;  // by WeightRef::id, of slices that lie outside
  std::vector<std::vector<const Matrix*>> of_slice_;  // [slices of the range]
  std::vector<std::optional<size_t>> blocks_;         // [slices of the range]
  // The bytes of the largest block for each block, as buffers are.
  std::vector<int64_t> buffer_bytes_;
  std::unique_ptr<cuda::PinnedRing> ring_;
  int first_interval_ = 0, interval_ = 0, wanted_interval_ = 0;
};

// What a matrix takes in a GPU's memory.
int64_t BytesOnDevice(const WeightReader::Named& matrix);

}  // namespace lamina
