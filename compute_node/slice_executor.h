// The SliceRunner of the CPU: runs the slices of a model on this machine's cores, operator by
// operator, all rows of a step together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/worker_team.h"
#include "compute_node/buffer_plan.h"
#include "compute_node/compute_device.h"
#include "compute_node/experts.h"
#include "compute_node/slice_turn.h"
#include "compute_node/weight_ring.h"
#include "compute_node/weights.h"
#include "splitter/slices.h"

namespace lamina {

// Thread: one owner.
class SliceExecutor final : public SliceRunner {
 public:
  // Borrows model, weights and team. `max_rows` is the largest number of rows of a step.
  // REQUIRES: the host has memory for the values of that many rows (ValueBytes).
  SliceExecutor(const SlicedModel& model, const Weights& weights, int max_rows, WorkerTeam& team);

  // The size of all values of a row that an executor of this model keeps.
  static int64_t ValueBytes(const SlicedModel& model);

  void Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions) override;
  const Op* Run(int k) override { return RunTo(k, -1); }
  const Op* RunToQueries(int k) override {
    return RunTo(k, model_.slices[static_cast<size_t>(k)].q);
  }
  // Runs slice `k` until value `there` is computed (-1: to its end) and returns nullptr, or to the
  // next all-reduce and returns it.
  const Op* RunTo(int k, ValueId there);
  void KeepRows(int k, std::span<const int> rows) override;
  void Sample(std::span<const SampleWork> work, std::span<SampledToken> tokens) override;

  int64_t num_rows() const { return static_cast<int64_t>(tokens_.size()); }

  float* value(ValueId id) override { return buffers_[plan_.BufferOf(id)].data(); }
  int64_t width(ValueId id) const { return model_.graph.values[static_cast<size_t>(id)].width; }

 private:
  void Execute(const Op& op);

  const SlicedModel& model_;
  const Weights& weights_;
  WorkerTeam& team_;
  const BufferPlan plan_;
  std::vector<std::vector<float>> buffers_;  // one for each buffer of the plan
  size_t next_op_ = 0;                       // in a slice that has stopped at q or an all-reduce
  SliceTurn<WeightRing> turn_;
  bool computes_ = false;  // the step had rows when it began, so that it needs weights
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<TokenId> table_rows_;  // scratch
  ExpertLayer experts_;              // scratch
};

}  // namespace lamina
