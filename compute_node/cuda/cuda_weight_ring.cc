#include "compute_node/cuda/cuda_weight_ring.h"

#include <cstring>
#include <utility>

#include "kernels/cuda/host/upload_quantized.h"

namespace lamina {
namespace {

constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

int64_t BytesOnDevice(const WeightReader::Named& matrix) {
  if (!matrix.format.is_quantized())
    return Aligned(matrix.num_elements * static_cast<int64_t>(ElementSize(matrix.dtype)));
  const cuda::QuantizedLayout layout(matrix.format, matrix.shape[0], matrix.shape[1]);
  return Aligned(static_cast<int64_t>(layout.size_bytes));
}

Result<std::unique_ptr<CudaWeightRing>> CudaWeightRing::Create(
    const SlicedModel& model, SliceRange range, const std::vector<WeightReader::Named>& named,
    const OffloadOptions& options, cuda::StagedStream& stream) {
  std::unique_ptr<CudaWeightRing> ring(new CudaWeightRing(range, stream));
  const std::map<std::string, int> slices = SlicesOfMatrices(model, range);
  const auto num_slices = static_cast<size_t>(range.end - range.first);
  std::vector<std::vector<const WeightReader::Named*>> matrices(num_slices);
  for (const WeightReader::Named& weight : named) {
    const auto slice = slices.find(weight.id);
    if (weight.role == WeightRole::kMatrix && slice != slices.end())
      matrices[static_cast<size_t>(slice->second - range.first)].push_back(&weight);
  }
  std::vector<int64_t> bytes;
  for (size_t slice = 0; slice < num_slices; ++slice)
    bytes.push_back(ring->PlanSlice(slice, matrices[slice], options.portion));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<bool> outside, FirstOutside(options, bytes));
  std::vector<int64_t> block_bytes;
  for (size_t slice = 0; slice < num_slices; ++slice) {
    ring->blocks_.emplace_back();
    if (!outside[slice] || bytes[slice] == 0) continue;
    ring->blocks_.back() = block_bytes.size();
    block_bytes.push_back(bytes[slice]);
  }
  std::erase_if(ring->matrices_,
                [&](const auto& matrix) { return !ring->blocks_[matrix.second.slice]; });
  stream.Enter();
  LAMINA_ASSIGN_OR_RETURN(
      ring->ring_, cuda::PinnedRing::Create(std::move(block_bytes), options.buffers, options.poison,
                                            stream.stream()));
  return ring;
}

int64_t CudaWeightRing::PlanSlice(size_t slice,
                                  const std::vector<const WeightReader::Named*>& matrices,
                                  double portion) {
  std::vector<int64_t> bytes;
  for (const WeightReader::Named* matrix : matrices) bytes.push_back(BytesOnDevice(*matrix));
  const std::vector<bool> outside = OutsideByPortion(bytes, portion);
  int64_t all = 0;
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (!outside[i]) continue;
    matrices_[matrices[i]->id] = {slice, all};
    all += bytes[i];
  }
  return all;
}

Result<cuda::LinearWeights> CudaWeightRing::Store(const FoundWeight& found,
                                                  cuda::DeviceBuffer& scratch) {
  const auto& [slice, offset] = matrices_.at(found.id);
  std::byte* const place = ring_->Place(*blocks_[slice]) + offset;
  std::byte* const home = ring_->Home(*blocks_[slice]) + offset;
  const std::vector<int64_t>& shape = found.weight.shape;
  if (found.quantized == nullptr) {
    std::memcpy(home, found.tensor.data.data(), found.tensor.data.size());
    return cuda::LinearWeights{place, found.tensor.dtype, shape[0], shape[1]};
  }
  // The GPU brings codes into their order; the place is free while weights are loaded.
  const cuda::LinearWeights weights =
      cuda::UploadQuantized(*found.quantized, place, scratch, stream_);
  const cuda::QuantizedLayout layout(found.quantized->format, shape[0], shape[1]);
  cuda::CopyToHost(home, place, layout.size_bytes, stream_.stream());
  LAMINA_RETURN_IF_ERROR(stream_.Synchronize());
  return weights;
}

void CudaWeightRing::Enter(int slice) {
  if (const std::optional<size_t> block = BlockOf(slice)) ring_->Enter(*block);
}

void CudaWeightRing::Leave(int slice) {
  if (const std::optional<size_t> block = BlockOf(slice)) ring_->Leave(*block);
}

}  // namespace lamina
