#include "compute_node/cuda/cuda_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.h"
#include "kernels/cuda/host/upload_quantized.h"
#include "kernels/elementwise.h"

namespace lamina {
namespace {

constexpr size_t kTensorAlignment = 256;

// A head whose weights are those of the embedding is in memory once, unless it is quantized. The
// weights are ordered by id and role, so its matrix comes immediately before its table.
bool IsMatrixToo(const WeightReader::Named& table, const WeightReader::Named& before) {
  return table.role == WeightRole::kTable && before.role == WeightRole::kMatrix &&
         before.id == table.id && !before.format.is_quantized();
}

size_t Aligned(size_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

size_t BytesOf(const WeightReader::Named& weight) {
  if (weight.role == WeightRole::kMatrix) return static_cast<size_t>(BytesOnDevice(weight));
  const size_t element =
      weight.role == WeightRole::kVector ? sizeof(float) : ElementSize(weight.dtype);
  return Aligned(static_cast<size_t>(weight.num_elements) * element);
}

}  // namespace

Result<std::unique_ptr<CudaWeights>> CudaWeights::Load(const Graph& graph,
                                                       const ModelConfig& config,
                                                       const WeightOptions& options,
                                                       cuda::StagedStream& stream) {
  LAMINA_ASSIGN_OR_RETURN(Loading loading, Loading::Start(graph, config, options, stream));
  for (bool more = true; more;) {
    LAMINA_ASSIGN_OR_RETURN(more, loading.Continue());
  }
  return loading.Take();
}

Result<CudaWeights::Loading> CudaWeights::Loading::Start(const Graph& graph,
                                                         const ModelConfig& config,
                                                         const WeightOptions& options,
                                                         cuda::StagedStream& stream,
                                                         const InTurns* in_turns) {
  LAMINA_ASSIGN_OR_RETURN(WeightReader reader, WeightReader::Open(graph, config, options));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<WeightReader::Named> named, reader.List());
  Loading loading(std::move(reader), stream);
  std::unique_ptr<CudaWeightRing>& ring = loading.weights_->ring_;
  if (in_turns != nullptr) {
    LAMINA_ASSIGN_OR_RETURN(ring, CudaWeightRing::Create(in_turns->model, in_turns->range, named,
                                                         in_turns->offload, stream));
  }
  size_t needed = 0;
  for (size_t i = 0; i < named.size(); ++i) {
    const bool is_outside =
        ring != nullptr && named[i].role == WeightRole::kMatrix && ring->Has(named[i].id);
    const bool is_there = i > 0 && IsMatrixToo(named[i], named[i - 1]);
    if (!is_outside && !is_there) needed += BytesOf(named[i]);
  }
  stream.Enter();
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceInfo info, cuda::DescribeDevice(stream.device()));
  if (needed > static_cast<size_t>(info.free_bytes)) {
    return OutOfSpace(options.model_dir + " has " + FormatGigabytes(static_cast<int64_t>(needed)) +
                      " of weights for this node, and cuda:" + std::to_string(stream.device()) +
                      " (" + info.name + ") has " + FormatGigabytes(info.free_bytes) +
                      " free; let weights lie outside (\"offload\"), share the model among several "
                      "compute nodes, "
                      "or stop what else uses the GPU");
  }
  LAMINA_ASSIGN_OR_RETURN(loading.weights_->memory_, cuda::DeviceBuffer::Create(needed));
  return loading;
}

Result<bool> CudaWeights::Loading::Continue() {
  stream_->Enter();
  LAMINA_ASSIGN_OR_RETURN(const bool more, reader_.ReadNext([this](const FoundWeight& found) {
    return weights_->Take(found, *stream_);
  }));
  if (more) return true;
  LAMINA_RETURN_IF_ERROR(stream_->Synchronize());
  weights_->size_bytes_ = reader_.size_bytes();
  weights_->scratch_ = {};
  return false;
}

std::byte* CudaWeights::NextPlace(size_t bytes) {
  std::byte* const place = memory_.as<std::byte>() + used_;
  used_ += Aligned(bytes);
  return place;
}

Status CudaWeights::TakeMatrix(const FoundWeight& found, cuda::StagedStream& stream) {
  cuda::LinearWeights& matrix = matrices_[found.id];
  const std::vector<int64_t>& shape = found.weight.shape;
  const std::span<const std::byte> data = found.tensor.data;
  if (ring_ != nullptr && ring_->Has(found.id)) {
    LAMINA_RETURN_IF_ERROR(ring_->Store(found, matrix, scratch_));
  } else if (found.quantized != nullptr) {
    const cuda::QuantizedLayout layout(found.quantized->format, shape[0], shape[1]);
    matrix =
        cuda::UploadQuantized(*found.quantized, NextPlace(layout.size_bytes), scratch_, stream);
  } else {
    std::byte* const place = NextPlace(data.size());
    stream.Copy(data.data(), data.size(), place);
    matrix = {place, found.tensor.dtype, shape[0], shape[1]};
  }
  most_places_ = std::max(most_places_, matrix.num_places());
  return OkStatus();
}

Status CudaWeights::Take(const FoundWeight& found, cuda::StagedStream& stream) {
  if (found.role == WeightRole::kMatrix) return TakeMatrix(found, stream);
  const DType dtype = found.tensor.dtype;
  if (found.role == WeightRole::kTable) {
    const auto matrix = matrices_.find(found.id);
    if (matrix != matrices_.end() && matrix->second.quantized.codes == nullptr) {
      tables_[found.id] = {matrix->second.data, dtype};
      return OkStatus();
    }
  }
  std::vector<float> vector;
  std::span<const std::byte> data = found.tensor.data;
  if (found.role == WeightRole::kVector) {
    vector.resize(static_cast<size_t>(found.weight.shape[0]));
    ConvertToFloat(data.data(), dtype, std::ssize(vector), vector.data());
    for (float& element : vector) element += found.weight.plus;
    data = std::as_bytes(std::span(vector));
  }
  std::byte* const place = NextPlace(data.size());
  stream.Copy(data.data(), data.size(), place);
  if (found.role == WeightRole::kVector)
    vectors_[found.id] = reinterpret_cast<const float*>(place);
  else
    tables_[found.id] = {place, dtype};
  return OkStatus();
}

}  // namespace lamina
