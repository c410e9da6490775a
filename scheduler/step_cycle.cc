#include "scheduler/step_cycle.h"

#include <algorithm>
#include <utility>

namespace lamina {

StepCycle::StepCycle(const StepCycleOptions& options)
    : options_(options),
      pipeline_(options.pipeline),
      chooser_(PipelineChooser(options.num_compute, options.max_batches, options.stages)),
      last_result_(static_cast<size_t>(options.max_batches)) {}

std::optional<Pipeline> StepCycle::TakeResult(size_t batch, TimePoint now, bool prefills,
                                              int num_running, std::optional<StepCost> cost) {
  if (!options_.chooses) return std::nullopt;
  const TimePoint before = std::exchange(last_result_[batch], now);
  // Prefill in one batch delays the rounds of all batches, so none of them is measured.
  if (prefills) {
    std::fill(last_result_.begin(), last_result_.end(), TimePoint{});
    return std::nullopt;
  }
  if (before != TimePoint{} && cost) {
    cost->round = std::chrono::duration<double>(now - before).count();
    // With several batches the time includes waiting behind the others.
    if (pipeline_.num_batches > 1) cost->wires.reset();
    chooser_->Observe(*cost, pipeline_);
  }
  const Pipeline next = chooser_->Choose(num_running, pipeline_);
  if (next == pipeline_) return std::nullopt;
  pipeline_ = next;
  // Rounds that began with the former pipeline belong to neither.
  std::fill(last_result_.begin(), last_result_.end(), TimePoint{});
  return next;
}

const Pipeline& StepCycle::LeaveNodes(int num_left) {
  // Counted from the options and not from the last call, since nodes may be lost one after another.
  const int num_lost = options_.num_compute - num_left;
  chooser_.emplace(num_left, std::max(1, options_.max_batches - num_lost), options_.stages);
  pipeline_ = {std::max(1, options_.pipeline.num_batches - num_lost),
               options_.pipeline.rotates && num_left > 1};
  std::fill(last_result_.begin(), last_result_.end(), TimePoint{});
  return pipeline_;
}

}  // namespace lamina
