#include "compute_node/kept_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "model/model_files.h"
#include "wire/codec.h"

namespace lamina {
namespace {

constexpr auto kProgressInterval = milliseconds(200);
constexpr auto kKeepModel = std::chrono::seconds(60);
// Small weights are loaded in one turn as long as it has not taken so long.
constexpr auto kLoadsATurn = milliseconds(5);

// Two requests for weights that are the same, from files that did not change, have the same.
std::string SourceOf(const ConfigureCompute& request) {
  const std::vector<std::string> files = DescribeModelFiles(request.model);
  const ModelPart& part = request.part;
  return fmt::format("{}\n{}\n{}\n{} {} {} {}\n{}", request.model,
                     static_cast<int>(request.load_format), request.dummy_seed, part.num_stages,
                     part.stage, part.num_ranks, part.rank, fmt::join(files, "\n"));
}

ModelShare ShareOf(const ModelPart& part) {
  return {std::max(part.num_stages, 1), part.stage, std::max(part.num_ranks, 1), part.rank};
}

}  // namespace

Status KeptModel::Ask(const ConfigureCompute& request) {
  std::string source = SourceOf(request);
  if ((loading_ != nullptr || loaded_ != nullptr) && source_ == source) return OkStatus();
  ++num_started_;
  loading_.reset();
  loaded_.reset();  // before the next one needs its memory
  failed_ = OkStatus();
  progress_ = {};
  source_ = std::move(source);
  WeightOptions weights;
  weights.model_dir = request.model;
  weights.load_format = request.load_format;
  weights.dummy_seed = request.dummy_seed;
  weights.share = ShareOf(request.part);
  LAMINA_ASSIGN_OR_RETURN(loading_, device_.StartLoad(weights));
  progress_ = loading_->progress();
  return OkStatus();
}

bool KeptModel::Turn(TimePoint now) {
  bool any = false;
  for (const TimePoint end = now + kLoadsATurn;
       loading_ != nullptr && now < end && loading_->wake_at() <= now; now = Clock::now()) {
    LoadOne(now);
    any = true;
  }
  if (loaded_ == nullptr) return any;
  if (loaded_.use_count() > 1)
    used_last_ = now;
  else if (now > used_last_ + kKeepModel)
    loaded_.reset();
  return any;
}

void KeptModel::LoadOne(TimePoint now) {
  Result<std::unique_ptr<LoadedModel>> model = loading_->Continue();
  progress_ = loading_->progress();
  if (model.ok() && *model == nullptr) return;
  loading_.reset();
  failed_ = model.status();
  if (!model.ok()) return;
  loaded_ = *std::move(model);
  used_last_ = now;
  // Read while nobody waits for it. A modelled device has no weights and often no tokenizer.
  const bool computes = loaded_->weights != nullptr || loaded_->device_weights != nullptr;
  if (computes && loaded_->ends_steps()) loaded_->vocabulary->Begin();
}

Result<AwaitedModel> AwaitedModel::Ask(KeptModel& models, const ConfigureCompute& request,
                                       const ManagerConnection& manager) {
  LAMINA_RETURN_IF_ERROR(models.Ask(request));
  return AwaitedModel(models, manager);
}

std::optional<Result<std::shared_ptr<const LoadedModel>>> AwaitedModel::Poll() {
  if (loading_ != models_->num_started_)
    return TryAgain("another manager had this node load another model");
  const bool is_over = models_->loading_ == nullptr;
  const TimePoint now = Clock::now();
  if (is_over ? was_told_ : now >= next_report_) {
    was_told_ = true;
    next_report_ = now + kProgressInterval;
    manager_.Send(MessageType::kWeightsProgress, Encode(models_->progress_));
  }
  if (!is_over) return std::nullopt;
  if (models_->loaded_ == nullptr) return models_->failed_;
  return models_->loaded_;
}

}  // namespace lamina
