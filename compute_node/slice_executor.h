// The SliceRunner of the CPU: runs the slices of a model on this machine's cores, operator by
// operator, all rows of a step together.
#pragma once

#include <cstdint>
#include <optional>
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
  // Logits of more rows than fit into this are computed in pieces, when Score and Sample need them.
  static constexpr int64_t kLogitBytes = int64_t{64} << 20;

  // Borrows model, weights and team. `max_rows` is the largest number of rows of a step, and
  // `logit_rows` of how many of them logits are kept at a time.
  // REQUIRES: the host has memory for the values of that many rows (ValueBytes).
  SliceExecutor(const SlicedModel& model, const Weights& weights, int max_rows, int logit_rows,
                WorkerTeam& team);

  // As many as fit into kLogitBytes, at least one; all where the last slice's weights may be gone
  // when it has run.
  static int LogitRows(const SlicedModel& model, const Weights& weights, int max_rows);

  // The size of all values that such an executor keeps; INT64_MAX if it cannot be told.
  static int64_t ValueBytes(const SlicedModel& model, int max_rows, int logit_rows);

  void Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions) override;
  const Op* Run(int k) override { return RunTo(k, -1); }
  const Op* RunToQueries(int k) override {
    return RunTo(k, model_.slices[static_cast<size_t>(k)].q);
  }
  // Runs slice `k` until value `there` is computed (-1: to its end) and returns nullptr, or to the
  // next all-reduce and returns it.
  const Op* RunTo(int k, ValueId there);
  void KeepRows(int k, std::span<const int> rows) override;
  void Score(std::span<const ScoreWork> work, std::span<TokenScore> scores) override;
  void Sample(std::span<const SampleWork> work, std::span<SampledToken> tokens) override;

  int64_t num_rows() const { return static_cast<int64_t>(tokens_.size()); }

  float* value(ValueId id) override { return buffers_[plan_.BufferOf(id)].data(); }
  int64_t width(ValueId id) const { return model_.graph.values[static_cast<size_t>(id)].width; }

 private:
  void Execute(const Op& op);
  // Whether Run leaves the logits of the last slice to Score and Sample.
  bool leaves_logits() const { return head_ && num_rows() > logit_rows_; }
  // Computes the logits of rows [first, first + count).
  void RunHead(int64_t first, int64_t count);
  // Calls take(i, logits) for each i of `work`, with the logits of its row, on the team.
  template <typename Work, typename Take>
  void ForEachRow(std::span<const Work> work, Take take);

  const SlicedModel& model_;
  const Weights& weights_;
  WorkerTeam& team_;
  const int64_t logit_rows_;
  const BufferPlan plan_;
  const std::optional<HeadOps> head_;
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
