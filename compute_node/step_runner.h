// Carries out one ComputeOrder: slices, attention, sampling. This is where a decode step happens on a compute node.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/attention_backend.h"
#include "compute_node/slice_executor.h"
#include "compute_node/weights.h"
#include "kernels/sampling.h"
#include "splitter/control.pb.h"
#include "splitter/model_config.h"
#include "splitter/slices.h"

namespace lamina {

// A model that is ready to run. Immutable.
struct LoadedModel {
  ModelConfig config;
  SlicedModel sliced;
  std::unique_ptr<Weights> weights;

  // Reads config.json, traces and cuts the graph, loads the weights.
  static Result<std::unique_ptr<LoadedModel>> Load(const WeightOptions& options, WorkerTeam& team);
};

// Thread: one owner.
class StepRunner {
 public:
  // Borrows model and team.
  StepRunner(const LoadedModel& model, const control::Limits& limits, std::unique_ptr<AttentionBackend> attention, WorkerTeam& team);

  // Never fails as a whole: what went wrong stands in the result, by sequence and by node.
  control::StepResult Run(const control::ComputeOrder& order);

 private:
  struct Sequence {
    std::vector<TokenId> tokens;  // prompt, then what was generated
    size_t num_prompt = 0;
    SamplingParams sampling;
  };
  struct Batch {  // the rows of one step
    std::vector<TokenId> tokens;
    std::vector<int32_t> positions;
    std::vector<AttentionWork> attention;
    std::vector<int> sampled;  // rows whose logits choose a token
  };

  void UpdateSequences(const control::ComputeOrder& order);
  Batch Collect(const control::ComputeOrder& order, Failures& failures) const;
  Status Check(const control::ComputeWork& work) const;
  static void AddRows(const control::ComputeWork& work, Batch& batch);
  void Forward(const Batch& batch);
  void SampleRows(const Batch& batch, const Failures& failures, control::StepResult& result);

  const LoadedModel& model_;
  const control::Limits limits_;
  WorkerTeam& team_;
  std::unique_ptr<AttentionBackend> attention_;
  SliceExecutor slices_;
  std::unordered_map<SequenceId, Sequence> sequences_;
};

}  // namespace lamina
