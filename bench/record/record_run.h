// Measures a step profile (cost/step_profile.h) of a cluster whose daemons run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cost/step_profile.h"
#include "manager/cluster_config.h"
#include "model/model_config.h"

namespace lamina {

// What is measured.
struct RecordPlan {
  std::vector<int> intervals;     // {0} where nothing lies outside
  std::vector<int> rows;          // sequences that decode
  std::vector<int64_t> contexts;  // tokens of each of them, about
  std::vector<int64_t> prompts;   // tokens of prompts that are computed in one step
  int num_steps = 5;              // of which the median is taken
};

// What a load took, and what the profile says of it.
struct LoadCheck {
  StepTime measured;
  double expected_s = 0;
};

class RecordRun {
 public:
  // Called with a line for people whenever one more is measured.
  using Progress = std::function<void(const std::string&)>;

  // Borrows all three. REQUIRES: ResolveConfig accepted the config, which has one batch.
  RecordRun(const ClusterConfig& config, const ModelConfig& model, const Progress& progress)
      : config_(config), model_(model), progress_(progress) {}

  // The times of the plan's steps. kOutOfSpace if the KV cache has no room for its sequences;
  // kTimeout if steps do not end; otherwise the errors of nodes.
  Result<std::vector<StepTime>> Measure(const RecordPlan& plan);

  // Decode steps of random loads within the plan's limits, measured in the same way: so many
  // sequences of so many tokens each.
  Result<std::vector<LoadCheck>> Check(const RecordPlan& plan, const StepProfile& profile,
                                       int num_loads, uint64_t seed);

 private:
  Result<std::vector<StepTime>> MeasureDecoding(const RecordPlan& plan);
  Result<std::vector<StepTime>> MeasurePrompts(const RecordPlan& plan);

  const ClusterConfig& config_;
  const ModelConfig& model_;
  const Progress& progress_;
};

}  // namespace lamina
