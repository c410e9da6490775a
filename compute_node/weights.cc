#include "compute_node/weights.h"

#include <utility>

#include "compute_node/pack_weight.h"
#include "compute_node/weight_ring.h"
#include "kernels/elementwise.h"

namespace lamina {

Weights::Weights() = default;
Weights::~Weights() = default;

Result<std::unique_ptr<Weights>> Weights::Load(const Graph& graph, const ModelConfig& config,
                                               const WeightOptions& options, WorkerTeam& team) {
  LAMINA_ASSIGN_OR_RETURN(Loading loading, Loading::Start(graph, config, options, team));
  for (bool more = true; more;) {
    LAMINA_ASSIGN_OR_RETURN(more, loading.Continue());
  }
  return loading.Take();
}

Weights::Loading::Loading(WeightReader reader, WorkerTeam& team)
    : reader_(std::move(reader)), team_(&team), weights_(new Weights()) {
  reader_.UnpackOn(team);
  reader_.UsePacked();
}

Result<Weights::Loading> Weights::Loading::Start(const Graph& graph, const ModelConfig& config,
                                                 const WeightOptions& options, WorkerTeam& team) {
  LAMINA_ASSIGN_OR_RETURN(WeightReader reader, WeightReader::Open(graph, config, options));
  return Loading(std::move(reader), team);
}

Result<Weights::Loading> Weights::Loading::StartInTurns(
    const SlicedModel& model, SliceRange range, const Graph& graph, const ModelConfig& config,
    const WeightOptions& options, const OffloadOptions& offload, WorkerTeam& team) {
  LAMINA_ASSIGN_OR_RETURN(Loading loading, Start(graph, config, options, team));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<WeightReader::Named> named, loading.reader_.List());
  LAMINA_ASSIGN_OR_RETURN(loading.weights_->ring_, WeightRing::Create(model, range, named, offload,
                                                                      loading.reader_.packed()));
  return loading;
}

Result<bool> Weights::Loading::Continue() {
  LAMINA_ASSIGN_OR_RETURN(const bool more, reader_.ReadNext([this](FoundWeight found) {
    return weights_->Take(std::move(found), *team_);
  }));
  if (more) return true;
  weights_->size_bytes_ = reader_.size_bytes();
  weights_->num_packed_ = reader_.num_packed();
  weights_->checkpoint_ = reader_.TakeCheckpoint();
  if (weights_->ring_ != nullptr) LAMINA_RETURN_IF_ERROR(weights_->ring_->Start());
  return false;
}

Status Weights::Take(FoundWeight found, WorkerTeam& team) {
  const auto& [dtype, tensor_shape, data] = found.tensor;
  const std::vector<int64_t>& shape = found.weight.shape;
  switch (found.role) {
    case WeightRole::kMatrix:
      if (ring_ != nullptr && ring_->Has(found.id)) {
        PackedWeights& matrix =
            matrices_.emplace(found.id, PackedWeights(found.format, shape[0], shape[1]))
                .first->second;
        return ring_->Store(found, team, matrix);
      }
      // Not used where they lie in a packed file: of a file the system has small pages only, which
      // cost a seventh of the speed at which weights are read.
      matrices_.emplace(found.id, Pack(found, team));
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
