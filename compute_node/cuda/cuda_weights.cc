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

size_t BytesOnDevice(const WeightReader::Named& weight) {
  if (weight.format.is_quantized())
    return cuda::QuantizedLayout(weight.format, weight.shape[0], weight.shape[1]).size_bytes;
  const size_t element =
      weight.role == WeightRole::kVector ? sizeof(float) : ElementSize(weight.dtype);
  return static_cast<size_t>(weight.num_elements) * element;
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
                                                         cuda::StagedStream& stream) {
  LAMINA_ASSIGN_OR_RETURN(WeightReader reader, WeightReader::Open(graph, config, options));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<WeightReader::Named> named, reader.List());
  size_t needed = 0;
  for (size_t i = 0; i < named.size(); ++i) {
    if (i == 0 || !IsMatrixToo(named[i], named[i - 1])) needed += Aligned(BytesOnDevice(named[i]));
  }
  stream.Enter();
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceInfo info, cuda::DescribeDevice(stream.device()));
  if (needed > static_cast<size_t>(info.free_bytes)) {
    return OutOfSpace(
        options.model_dir + " has " + FormatGigabytes(static_cast<int64_t>(needed)) +
        " of weights for this node, and cuda:" + std::to_string(stream.device()) + " (" +
        info.name + ") has " + FormatGigabytes(info.free_bytes) +
        " free; share the model among several compute nodes, or stop what else uses the GPU");
  }
  Loading loading(std::move(reader), stream);
  LAMINA_ASSIGN_OR_RETURN(loading.weights_->memory_, cuda::DeviceBuffer::Create(needed));
  return loading;
}

Result<bool> CudaWeights::Loading::Continue() {
  stream_->Enter();
  LAMINA_ASSIGN_OR_RETURN(const bool more, reader_.ReadNext([this](const FoundWeight& found) {
    weights_->Take(found, *stream_);
    return OkStatus();
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

void CudaWeights::Take(const FoundWeight& found, cuda::StagedStream& stream) {
  const std::vector<int64_t>& shape = found.weight.shape;
  if (found.quantized != nullptr) {
    const cuda::QuantizedLayout layout(found.quantized->format, shape[0], shape[1]);
    matrices_[found.id] =
        cuda::UploadQuantized(*found.quantized, NextPlace(layout.size_bytes), scratch_, stream);
    most_places_ = std::max(most_places_, layout.num_places);
    return;
  }
  const DType dtype = found.tensor.dtype;
  if (found.role == WeightRole::kTable) {
    const auto matrix = matrices_.find(found.id);
    if (matrix != matrices_.end() && matrix->second.quantized.codes == nullptr) {
      tables_[found.id] = {matrix->second.data, dtype};
      return;
    }
  }
  std::vector<float> vector;
  std::span<const std::byte> data = found.tensor.data;
  if (found.role == WeightRole::kVector) {
    vector.resize(static_cast<size_t>(shape[0]));
    ConvertToFloat(data.data(), dtype, shape[0], vector.data());
    for (float& element : vector) element += found.weight.plus;
    data = std::as_bytes(std::span(vector));
  }
  std::byte* const place = NextPlace(data.size());
  stream.Copy(data.data(), data.size(), place);
  switch (found.role) {
    case WeightRole::kMatrix: matrices_[found.id] = {place, dtype, shape[0], shape[1]}; break;
    case WeightRole::kVector: vectors_[found.id] = reinterpret_cast<const float*>(place); break;
    case WeightRole::kTable: tables_[found.id] = {place, dtype}; break;
  }
}

}  // namespace lamina
