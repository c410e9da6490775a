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

Result<std::shared_ptr<const LoadedModel>> KeptModel::Get(const ConfigureCompute& request,
                                                          const ManagerConnection& manager) {
  std::string source = SourceOf(request);
  if (loaded_ != nullptr && source_ == source) return loaded_;
  loaded_.reset();  // before the next one needs its memory
  WeightOptions weights;
  weights.model_dir = request.model;
  weights.load_format = request.load_format;
  weights.dummy_seed = request.dummy_seed;
  weights.share = ShareOf(request.part);
  TimePoint last_report = Clock::now() - kProgressInterval;
  weights.on_progress = [&](int64_t loaded, int64_t total) {
    if (loaded < total && Clock::now() - last_report < kProgressInterval) return;
    last_report = Clock::now();
    manager.Send(MessageType::kWeightsProgress, Encode(WeightsProgress{loaded, total}));
  };
  weights.interrupted = [&] { return interrupted_.load(); };
  LAMINA_ASSIGN_OR_RETURN(loaded_, device_.Load(weights));
  // Read while nobody waits for it. A modelled device has no weights and often no tokenizer.
  const bool computes = loaded_->weights != nullptr || loaded_->device_weights != nullptr;
  if (computes && loaded_->ends_steps()) loaded_->vocabulary->Begin();
  source_ = std::move(source);
  used_last_ = Clock::now();
  return loaded_;
}

void KeptModel::Turn(TimePoint now) {
  if (loaded_ == nullptr) return;
  if (loaded_.use_count() > 1)
    used_last_ = now;
  else if (now > used_last_ + kKeepModel)
    loaded_.reset();
}

}  // namespace lamina
