// Runs the slices of a model on this node's device: one program at a time, all rows of a step together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/worker_team.h"
#include "compute_node/weights.h"
#include "splitter/model_config.h"
#include "splitter/slices.h"

namespace lamina {

// Values live in a few reused buffers; which one holds which value is planned once, over the whole chain slice 0, attention 0, slice 1, ...
// Thread: one owner.
class SliceExecutor {
 public:
  // Borrows everything; `max_rows` is the largest step.
  SliceExecutor(const SlicedModel& model, const ModelConfig& config, const Weights& weights, int max_rows, WorkerTeam& team);

  // Starts a step of tokens.size() rows. REQUIRES: at most max_rows; tokens in the vocabulary.
  void Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions);

  // Runs slice `k`. REQUIRES: slices run in order; before slice k > 0 attention k-1's output was written to value(attention_out).
  void Run(int k);

  // Keeps only these rows (ascending) from here on: the last slice is only worth running for rows that are sampled.
  // REQUIRES: called after attention k-1 and before Run(k).
  void KeepRows(int k, std::span<const int> rows);

  int64_t num_rows() const { return static_cast<int64_t>(tokens_.size()); }

  // [num_rows, width] of a value that is live now.
  float* value(ValueId id) { return buffers_[static_cast<size_t>(buffer_of_[static_cast<size_t>(id)])].data(); }
  int64_t width(ValueId id) const { return model_.graph.values[static_cast<size_t>(id)].width; }

 private:
  void PlanBuffers(int max_rows);
  void Execute(const Op& op);

  const SlicedModel& model_;
  const Weights& weights_;
  WorkerTeam& team_;
  const std::vector<float> inv_freq_;
  std::vector<int> buffer_of_;  // [values] index into buffers_, -1 for tokens and positions
  std::vector<std::vector<float>> buffers_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
};

}  // namespace lamina
