#include "compute_node/weights.h"

#include <utility>

#include "kernels/elementwise.h"

namespace lamina {

Result<std::unique_ptr<Weights>> Weights::Load(const Graph& graph, const ModelConfig& config,
                                               const WeightOptions& options, WorkerTeam& team) {
  LAMINA_ASSIGN_OR_RETURN(WeightReader reader, WeightReader::Open(graph, config, options));
  std::unique_ptr<Weights> weights(new Weights());
  const auto take = [&](FoundWeight found) {
    weights->Take(std::move(found), team);
    return OkStatus();
  };
  LAMINA_ASSIGN_OR_RETURN(weights->size_bytes_, reader.ReadAll(take));
  weights->checkpoint_ = reader.TakeCheckpoint();
  return weights;
}

void Weights::Take(FoundWeight found, WorkerTeam& team) {
  const auto& [dtype, tensor_shape, data] = found.tensor;
  const std::vector<int64_t>& shape = found.weight.shape;
  switch (found.role) {
    case WeightRole::kMatrix:
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
}

}  // namespace lamina
