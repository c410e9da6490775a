#include "scheduler/pipeline.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "scheduler/round.h"

namespace lamina {
namespace {

constexpr double kFade = 0.98;          // factor on the weight of older steps at each new one
constexpr double kGainToSwitch = 1.05;  // how much faster a pipeline must be to replace the present
constexpr double kAboutEqual = 1.03;    // within this factor of the best, the simplest is taken
// Standard deviation of the rows over their mean, below which no slope can be seen.
constexpr double kSmallestSpread = 0.02;

// A measured round still holds if the rows have changed by no more than this fraction.
constexpr double kAlikeRows = 0.25;
// Rounds of a new pipeline before its mean is begun, and before it is relied on.
constexpr int kRoundsToSettle = 4, kRoundsToJudge = 12;
// A pipeline that was not used for this many rounds is predicted again: conditions may have
// changed.
constexpr int64_t kRoundsToForget = 2000;
// What counts of one step that took far longer, as a multiple of what was expected: with the weight
// of one step, less than kGainToSwitch makes of the mean.
constexpr double kMostOverExpected = 3;

}  // namespace

void PipelineChooser::Line::Add(double x, double y) {
  if (n_ >= kRoundsToJudge) y = std::min(y, kMostOverExpected * std::max(At(x), y_ / n_));
  n_ = n_ * kFade + 1;
  x_ = x_ * kFade + x;
  y_ = y_ * kFade + y;
  xx_ = xx_ * kFade + x * x;
  xy_ = xy_ * kFade + x * y;
  const double mean_x = x_ / n_, mean_y = y_ / n_;
  const double variance = xx_ / n_ - mean_x * mean_x;
  if (mean_y <= 0 || variance <= kSmallestSpread * kSmallestSpread * mean_x * mean_x) return;
  const double slope = (xy_ / n_ - mean_x * mean_y) / variance;
  // Between a constant and a proportional cost. Noise must not suggest that more rows take less
  // time, nor that no rows take a negative time.
  seen_ = std::clamp(slope * mean_x / mean_y, 0.0, 1.0);
}

double PipelineChooser::Line::At(double x) const {
  if (n_ == 0) return 0;
  const double mean_x = x_ / n_, mean_y = y_ / n_;
  const double share = seen_.value_or(x < mean_x ? guess_.below : guess_.above);
  return mean_y * (1 + share * (x / mean_x - 1));
}

PipelineChooser::PipelineChooser(int num_compute_nodes, int max_batches, bool stages)
    : num_compute_nodes_(num_compute_nodes), max_batches_(max_batches), stages_(stages) {}

void PipelineChooser::Observe(const StepCost& cost, const Pipeline& now) {
  ++num_observed_;
  slices_.Add(cost.rows, cost.slices);
  attention_.Add(cost.rows, cost.attention);
  if (cost.wires) wires_.Add(cost.rows, *cost.wires);
  auto entry = std::ranges::find(measured_, now, &Measured::pipeline);
  if (entry == measured_.end()) entry = measured_.insert(entry, Measured{.pipeline = now});
  const double rows = cost.rows * now.num_batches;
  if (num_observed_ - entry->last > kRoundsToForget ||
      std::abs(entry->rows - rows) > kAlikeRows * rows)
    entry->num_rounds = 0;
  // In the first rounds sequences still change their batch, so each of them replaces the one
  // before. Then comes the plain mean, and in the end one that fades.
  const double weight = std::max(1.0 / std::max(1, entry->num_rounds - kRoundsToSettle), 1 - kFade);
  const double round = entry->num_rounds < kRoundsToJudge
                           ? cost.round
                           : std::min(cost.round, kMostOverExpected * entry->round);
  entry->rows += (rows - entry->rows) * weight;
  entry->round += (round - entry->round) * weight;
  ++entry->num_rounds;
  entry->last = num_observed_;
}

const PipelineChooser::Measured* PipelineChooser::Find(const Pipeline& pipeline) const {
  const auto found = std::ranges::find(measured_, pipeline, &Measured::pipeline);
  return found == measured_.end() || found->num_rounds < kRoundsToJudge ? nullptr : &*found;
}

double PipelineChooser::Round(int num_rows, const Pipeline& pipeline) const {
  const Measured* const measured = Find(pipeline);
  const bool holds = measured != nullptr && num_observed_ - measured->last < kRoundsToForget &&
                     std::abs(measured->rows - num_rows) < kAlikeRows * num_rows;
  return holds ? measured->round : Predict(num_rows, pipeline);
}

double PipelineChooser::Predict(int num_rows, const Pipeline& pipeline) const {
  const int n = pipeline.num_batches;
  const double rows = std::ceil(static_cast<double>(num_rows) / n);
  const double slices = slices_.At(rows), attention = attention_.At(rows);
  // The node with the most batches takes longest: that of batch 0.
  const double steps = StepsOnNodeOf(0, n, num_compute_nodes_, pipeline.rotates || stages_);
  return RoundSeconds(
      {.step = slices + attention + wires_.At(rows), .slices = slices, .attention = attention},
      steps, n);
}

Pipeline PipelineChooser::Choose(int num_rows, const Pipeline& now) const {
  if (num_rows < 1 || Find(now) == nullptr) return now;
  // A batch without sequences gains nothing, so there are at most as many batches as rows.
  std::vector<Pipeline> simplest_first;
  for (int n = 1; n <= std::min(max_batches_, num_rows); ++n) {
    simplest_first.push_back({n, false});
    if (num_compute_nodes_ > 1 && !stages_) simplest_first.push_back({n, true});
  }
  const auto time = [&](const Pipeline& pipeline) { return Round(num_rows, pipeline); };
  const double shortest = time(std::ranges::min(simplest_first, {}, time));
  const Pipeline chosen = *std::ranges::find_if(
      simplest_first, [&](const Pipeline& p) { return time(p) <= shortest * kAboutEqual; });
  return time(chosen) * kGainToSwitch < time(now) ? chosen : now;
}

}  // namespace lamina
