// Runs the slices of a model on this machine's cores: one program at a time, all rows of a step together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/worker_team.h"
#include "compute_node/compute_device.h"
#include "compute_node/experts.h"
#include "compute_node/weights.h"
#include "splitter/slices.h"

namespace lamina {

// Values live in a few reused buffers; which one holds which value is planned once, over the whole chain slice 0, attention 0, slice 1, ...
// Thread: one owner.
class SliceExecutor final : public SliceRunner {
 public:
  // Borrows everything; `max_rows` is the largest step.
  SliceExecutor(const SlicedModel& model, const Weights& weights, int max_rows, WorkerTeam& team);

  void Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions) override;
  const Op* Run(int k) override { return RunTo(k, -1); }
  const Op* RunToQueries(int k) override { return RunTo(k, model_.slices[static_cast<size_t>(k)].q); }
  // As RunToQueries, until value `there` is (-1: to the end).
  const Op* RunTo(int k, ValueId there);
  void KeepRows(int k, std::span<const int> rows) override;
  SampledToken Sample(size_t row, const SamplingParams& params, const SampleContext& context) override;

  int64_t num_rows() const { return static_cast<int64_t>(tokens_.size()); }

  // Of any value that is live now.
  float* value(ValueId id) override { return buffers_[static_cast<size_t>(buffer_of_[static_cast<size_t>(id)])].data(); }
  int64_t width(ValueId id) const { return model_.graph.values[static_cast<size_t>(id)].width; }

 private:
  void PlanBuffers(int max_rows);
  void Execute(const Op& op);

  const SlicedModel& model_;
  const Weights& weights_;
  WorkerTeam& team_;
  std::vector<int> buffer_of_;  // [values] index into buffers_, -1 for tokens and positions
  std::vector<std::vector<float>> buffers_;
  size_t next_op_ = 0;  // of the slice that RunToQueries has begun
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<TokenId> table_rows_;  // scratch
  ExpertLayer experts_;              // likewise
};

}  // namespace lamina
