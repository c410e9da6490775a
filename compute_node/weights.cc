#include "compute_node/weights.h"

#include <utility>

#include "compute_node/weight_ring.h"
#include "kernels/elementwise.h"

namespace lamina {

Weights::Weights() = default;
Weights::~Weights() = default;

Result<std::unique_ptr<Weights>> Weights::Load(const Graph& graph, const ModelConfig& config,
                                               const WeightOptions& options, WorkerTeam& team) {
  LAMINA_ASSIGN_OR_RETURN(WeightReader reader, WeightReader::Open(graph, config, options));
  std::unique_ptr<Weights> weights(new Weights());
  LAMINA_RETURN_IF_ERROR(weights->ReadAll(reader, team));
  return weights;
}

Result<std::unique_ptr<Weights>> Weights::LoadInTurns(const SlicedModel& model, SliceRange range,
                                                      const Graph& graph, const ModelConfig& config,
                                                      const WeightOptions& options,
                                                      const OffloadOptions& offload,
                                                      WorkerTeam& team) {
  LAMINA_ASSIGN_OR_RETURN(WeightReader reader, WeightReader::Open(graph, config, options));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<WeightReader::Named> named, reader.List());
  std::unique_ptr<Weights> weights(new Weights());
  LAMINA_ASSIGN_OR_RETURN(weights->ring_, WeightRing::Create(model, range, named, offload));
  LAMINA_RETURN_IF_ERROR(weights->ReadAll(reader, team));
  LAMINA_RETURN_IF_ERROR(weights->ring_->Start());
  return weights;
}

Status Weights::ReadAll(WeightReader& reader, WorkerTeam& team) {
  const auto take = [&](FoundWeight found) { return Take(std::move(found), team); };
  LAMINA_ASSIGN_OR_RETURN(size_bytes_, reader.ReadAll(take));
  checkpoint_ = reader.TakeCheckpoint();
  return OkStatus();
}

Status Weights::Take(FoundWeight found, WorkerTeam& team) {
  const auto& [dtype, tensor_shape, data] = found.tensor;
  const std::vector<int64_t>& shape = found.weight.shape;
  switch (found.role) {
    case WeightRole::kMatrix:
      if (ring_ != nullptr && ring_->Has(found.id)) {
        PackedWeights& matrix =
            matrices_
                .emplace(found.id, PackedWeights(found.quantized ? found.quantized->format : dtype,
                                                 shape[0], shape[1]))
                .first->second;
        return ring_->Store(found, team, matrix);
      }
      if (found.quantized) {
        matrices_.emplace(found.id, PackedWeights(*found.quantized, team));
        break;
      }
      matrices_.emplace(found.id, PackedWeights(data.data(), dtype, shape[0], shape[1], team));
      break;
    case WeightRole::kVector: {
      std::vector<float>& vector = vectors_[found.id];
      vector.resize(static_cast<size_t>(shape[0]));
      ConvertToFloat(data.data(), dtype, shape[0], vector.data());
      for (float& element : vector) element += found.weight.plus;
      break;
    }
    case WeightRole::kTable:
      tables_[found.id] = {data.data(), dtype};
      if (!found.made.empty()) made_tables_[found.id] = std::move(found.made);
      break;
  }
  return OkStatus();
}

}  // namespace lamina
