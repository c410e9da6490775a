// Carries out one ComputeOrder: slices, attention, sampling. This is where a decode step happens on a compute node.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/attention_backend.h"
#include "compute_node/compute_device.h"
#include "kernels/sampling.h"
#include "splitter/control.pb.h"

namespace lamina {

// Thread: one owner.
class StepRunner {
 public:
  // Borrows model, device and team.
  StepRunner(const LoadedModel& model, const control::Limits& limits, std::unique_ptr<AttentionBackend> attention, ComputeDevice& device,
             WorkerTeam& team);

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
  const std::unique_ptr<SliceRunner> slices_;
  std::unordered_map<SequenceId, Sequence> sequences_;
};

}  // namespace lamina
