#include "compute_node/cuda/cuda_weight_ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/host/upload_quantized.h"

namespace lamina {
namespace {

constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The model's last linear layer.
std::string HeadOf(const SlicedModel& model) {
  std::string head;
  for (const Op& op : model.slices.back().program) {
    if (op.kind == OpKind::kLinear) head = op.weights[0].id();
  }
  return head;
}

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
  std::unique_ptr<CudaWeightRing> ring(new CudaWeightRing(range, options, stream));
  const std::map<std::string, int> slices = SlicesOfMatrices(model, range);
  const auto num_slices = static_cast<size_t>(range.end - range.first);
  const std::string head = HeadOf(model);
  std::vector<std::vector<const WeightReader::Named*>> matrices(num_slices);
  for (const WeightReader::Named& weight : named) {
    const auto slice = slices.find(weight.id);
    if (weight.role == WeightRole::kMatrix && slice != slices.end() && weight.id != head)
      matrices[static_cast<size_t>(slice->second - range.first)].push_back(&weight);
  }
  std::vector<int64_t> bytes;
  for (size_t slice = 0; slice < num_slices; ++slice)
    bytes.push_back(ring->PlanSlice(slice, matrices[slice]));
  LAMINA_RETURN_IF_ERROR(ring->MakeRing(bytes));
  return ring;
}

int64_t CudaWeightRing::PlanSlice(size_t slice,
                                  const std::vector<const WeightReader::Named*>& matrices) {
  std::vector<int64_t> bytes;
  for (const WeightReader::Named* matrix : matrices) bytes.push_back(BytesOnDevice(*matrix));
  const std::vector<bool> outside = OutsideByPortion(bytes, options_.portion);
  int64_t all = 0;
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (!outside[i]) continue;
    matrices_[matrices[i]->id] = {slice, all};
    all += bytes[i];
  }
  return all;
}

Status CudaWeightRing::MakeRing(const std::vector<int64_t>& slice_bytes) {
  const size_t n = slice_bytes.size();
  cuda::PinnedRingOptions options;
  options.poison = options_.poison;
  buffer_bytes_.assign(n, std::ranges::max(slice_bytes));
  LAMINA_ASSIGN_OR_RETURN(first_interval_, FirstInterval(options_, buffer_bytes_));
  std::vector<bool> outside(n, true);
  options.num_buffers = options_.buffers;
  if (!options_.is_auto) {
    outside = OutsideByInterval(static_cast<int>(n), first_interval_, options_.num_in_group);
  } else {
    const int64_t room = options_.memory_bytes / std::max<int64_t>(1, buffer_bytes_[0]);
    options.num_buffers = static_cast<int>(
        options_.memory_bytes == 0 ? std::ssize(buffer_bytes_)
                                   : std::min<int64_t>(room, std::ssize(buffer_bytes_)));
  }
  for (size_t slice = 0; slice < n; ++slice) {
    blocks_.emplace_back();
    // A slice that has nothing outside is a block all the same where intervals count slices.
    if (!outside[slice] || (slice_bytes[slice] == 0 && !options_.is_auto)) continue;
    blocks_.back() = options.block_bytes.size();
    options.block_bytes.push_back(slice_bytes[slice]);
  }
  // There may be fewer blocks than slices outside.
  const auto num_blocks = static_cast<int>(options.block_bytes.size());
  options.num_buffers = std::min(options.num_buffers, num_blocks);
  options.num_shared = std::min(options_.buffers, options.num_buffers);
  std::erase_if(matrices_, [&](const auto& matrix) { return !blocks_[matrix.second.slice]; });
  of_slice_.resize(n);
  for (const auto& [id, matrix] : matrices_) of_slice_[matrix.slice].push_back(&matrix);
  stream_.Enter();
  LAMINA_ASSIGN_OR_RETURN(ring_, cuda::PinnedRing::Create(std::move(options), stream_.stream()));
  wanted_interval_ = first_interval_;
  interval_ = options_.is_auto ? -1 : first_interval_;
  ChangeInterval();
  return OkStatus();
}

void CudaWeightRing::ChangeInterval() {
  if (wanted_interval_ == interval_ || !MayChangeTo(wanted_interval_, options_, buffer_bytes_))
    return;
  interval_ = wanted_interval_;
  ring_->SetOutside(OutsideByInterval(static_cast<int>(buffer_bytes_.size()), interval_));
}

void CudaWeightRing::PointTo(const Matrix& matrix, std::byte* block) const {
  cuda::LinearWeights& weights = *matrix.weights;
  std::byte* const place = block + matrix.offset;
  if (!weights.quantized.format.is_quantized()) {
    weights.data = place;
    return;
  }
  const WeightFormat format = weights.quantized.format;
  weights.quantized =
      cuda::QuantizedLayout(format, weights.out_features, weights.in_features).At(place, format);
}

Status CudaWeightRing::Store(const FoundWeight& found, cuda::LinearWeights& weights,
                             cuda::DeviceBuffer& scratch) {
  Matrix& matrix = matrices_.at(found.id);
  const size_t block = *blocks_[matrix.slice];
  matrix.weights = &weights;
  std::byte* const home = ring_->Home(block) + matrix.offset;
  const std::vector<int64_t>& shape = found.weight.shape;
  if (found.quantized == nullptr) {
    std::memcpy(home, found.tensor.data.data(), found.tensor.data.size());
    weights = {nullptr, found.tensor.dtype, shape[0], shape[1]};
    PointTo(matrix, ring_->Place(block));
    return OkStatus();
  }
  // The GPU brings codes into their order; the place is free while weights are loaded.
  std::byte* const place = ring_->Place(block) + matrix.offset;
  weights = cuda::UploadQuantized(*found.quantized, place, scratch, stream_);
  const cuda::QuantizedLayout layout(found.quantized->format, shape[0], shape[1]);
  cuda::CopyToHost(home, place, layout.size_bytes, stream_.stream());
  return stream_.Synchronize();
}

const std::byte* CudaWeightRing::Enter(int slice) {
  if (wanted_interval_ != interval_) ChangeInterval();
  const std::optional<size_t> block = BlockOf(slice);
  if (!block) return nullptr;
  ring_->Enter(*block);
  std::byte* const place = ring_->Place(*block);
  for (const Matrix* matrix : of_slice_[static_cast<size_t>(slice - range_.first)])
    PointTo(*matrix, place);
  return place;
}

void CudaWeightRing::Leave(int slice) {
  if (const std::optional<size_t> block = BlockOf(slice)) ring_->Leave(*block);
}

}  // namespace lamina
