#include "compute_node/compute_device.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/host_memory.h"
#include "compute_node/local_attention.h"
#include "compute_node/slice_executor.h"
#include "compute_node/weight_ring.h"
#include "kernels/elementwise.h"
#include "kernels/kv_rows.h"
#include "node/kv_ring.h"
#include "splitter/tensor_parallel.h"

namespace lamina {
namespace {

class LoadingOnCpu final : public LoadingModel {
 public:
  LoadingOnCpu(std::unique_ptr<LoadedModel> model, Weights::Loading weights, bool is_auto)
      : model_(std::move(model)), weights_(std::move(weights)), is_auto_(is_auto) {}

  Result<std::unique_ptr<LoadedModel>> Continue() override {
    LAMINA_ASSIGN_OR_RETURN(const bool more, weights_.Continue());
    if (more) return std::unique_ptr<LoadedModel>();
    model_->weights = weights_.Take();
    if (is_auto_) model_->largest_interval = model_->weights->ring()->first_interval();
    model_->weight_bytes = model_->weights->size_bytes();
    return std::move(model_);
  }
  WeightsProgress progress() const override { return weights_.progress(); }

 private:
  std::unique_ptr<LoadedModel> model_;
  Weights::Loading weights_;  // borrows the model's config
  const bool is_auto_;        // intervals are chosen while it serves
};

Result<std::unique_ptr<LoadingModel>> StartLoadOnCpu(const WeightOptions& options, WorkerTeam& team,
                                                     const OffloadOptions& offload) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> model,
                          LoadedModel::Describe(options.model_dir, options.share));
  LAMINA_ASSIGN_OR_RETURN(model->sinks, ReadSinks(model->sliced, model->config, options));
  Result<Weights::Loading> weights =
      offload.any() ? Weights::Loading::StartInTurns(model->sliced, model->slices(), model->part(),
                                                     model->config, options, offload, team)
                    : Weights::Loading::Start(model->part(), model->config, options, team);
  if (!weights.ok()) return weights.status();
  return std::unique_ptr<LoadingModel>(std::make_unique<LoadingOnCpu>(
      std::move(model), *std::move(weights), offload.any() && offload.is_auto));
}

Result<std::unique_ptr<LoadedModel>> LoadAll(Result<std::unique_ptr<LoadingModel>> loading) {
  if (!loading.ok()) return loading.status();
  std::unique_ptr<LoadedModel> model;
  while (model == nullptr) {
    // Real weights are there to be read at once; modelled ones take their time.
    std::this_thread::sleep_for((*loading)->wake_at() - Clock::now());
    LAMINA_ASSIGN_OR_RETURN(model, (*loading)->Continue());
  }
  return model;
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadedModel::Describe(const std::string& model_dir,
                                                           const ModelShare& share) {
  if (share.stage < 0 || share.stage >= share.num_stages || share.rank < 0 ||
      share.rank >= share.num_ranks)
    return InvalidArgument("a share of the model that cannot be");
  auto model = std::make_unique<LoadedModel>();
  LAMINA_ASSIGN_OR_RETURN(model->config, ModelConfig::Load(model_dir));
  LAMINA_ASSIGN_OR_RETURN(const Graph whole, TraceModel(model->config));
  LAMINA_ASSIGN_OR_RETURN(Graph graph, GraphOfRank(whole, share.num_ranks, share.rank));
  LAMINA_ASSIGN_OR_RETURN(model->sliced, SplitGraph(std::move(graph)));
  LAMINA_ASSIGN_OR_RETURN(model->first_slices, CutIntoStages(model->sliced, share.num_stages));
  model->share = share;
  model->vocabulary = std::make_shared<ModelVocabulary>(model_dir, model->config.vocab_size);
  return model;
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Load(const WeightOptions& options,
                                                       WorkerTeam& team,
                                                       const OffloadOptions& offload) {
  return LoadAll(StartLoadOnCpu(options, team, offload));
}

void LoadedModel::SetInterval(int interval) const {
  if (weights != nullptr && weights->ring() != nullptr) weights->ring()->SetInterval(interval);
  if (device_weights != nullptr) device_weights->SetInterval(interval);
}

Result<std::unique_ptr<LoadedModel>> ComputeDevice::Load(const WeightOptions& options) {
  return LoadAll(StartLoad(options));
}

Result<std::unique_ptr<LoadingModel>> CpuDevice::StartLoad(const WeightOptions& options) {
  return StartLoadOnCpu(options, team_, offload_.weights);
}

Result<std::unique_ptr<SliceRunner>> CpuDevice::MakeSlices(const LoadedModel& model, int max_rows) {
  const int logit_rows = SliceExecutor::LogitRows(model.sliced, *model.weights, max_rows);
  LAMINA_RETURN_IF_ERROR(
      CheckHostMemory(SliceExecutor::ValueBytes(model.sliced, max_rows, logit_rows),
                      "the values of a step of " + std::to_string(max_rows) + " tokens"));
  return std::unique_ptr<SliceRunner>(
      std::make_unique<SliceExecutor>(model.sliced, *model.weights, max_rows, logit_rows, team_));
}

Result<std::unique_ptr<LocalKv>> CpuDevice::MakeKv(const AttentionShape& shape, const KvShape& kv,
                                                   const AttentionLayers& layers,
                                                   int64_t capacity_tokens) {
  std::unique_ptr<KvStore> store;
  if (offload_.kv.any()) {
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<KvRing> ring,
                            KvRing::Create(kv, offload_.kv, capacity_tokens));
    LAMINA_ASSIGN_OR_RETURN(store, KvStore::CreateIn(std::move(ring), kv, capacity_tokens));
  } else {
    LAMINA_ASSIGN_OR_RETURN(store, KvStore::Create(kv, capacity_tokens));
  }
  return std::unique_ptr<LocalKv>(std::make_unique<CpuKv>(shape, layers, std::move(store), team_));
}

std::byte* CpuDevice::Pack(std::span<const PackedParts> packed, std::byte* message) {
  for (const auto& [value, parts, dtype, head_dim] : packed) {
    const int64_t width = head_dim > 0 ? head_dim : parts.width;
    const int64_t num_heads = head_dim > 0 ? parts.width / head_dim : 1;
    for (const int row : parts.rows) {
      message =
          PackKvRow(value + row * parts.pitch + parts.first, num_heads, width, dtype, message);
    }
  }
  return message;
}

void CpuDevice::Unpack(const std::byte* message, DType dtype, const RowParts& parts, float* value) {
  for (const int row : parts.rows) {
    ConvertToFloat(message, dtype, parts.width, value + row * parts.pitch + parts.first);
    message += static_cast<size_t>(parts.width) * ElementSize(dtype);
  }
}

void CpuDevice::AddUnpacked(const std::byte* message, DType dtype, int64_t n, float* value) {
  scratch_.resize(static_cast<size_t>(n));
  ConvertToFloat(message, dtype, n, scratch_.data());
  Add(value, scratch_.data(), n, value);
}

}  // namespace lamina
