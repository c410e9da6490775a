// A mixture of experts on this machine's cores: a router sends each row to a few of many MLPs
// (Shazeer et al., 2017; Jiang et al., Mixtral of Experts, 2024, section 2.1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/worker_team.h"
#include "compute_node/weights.h"
#include "model/graph.h"

namespace lamina {

// An expert that a row is routed to, and the weight of its output or, with kSigmoidInputs, of its
// input.
struct RoutedExpert {
  int expert = 0;
  float weight = 0;
};

// Fills `out` with the experts that have the largest logits, in ascending order of their numbers;
// of equal logits the lower number is taken. REQUIRES: 0 < out.size() <= logits.size().
void RouteRow(std::span<const float> logits, ExpertRouting routing, std::span<RoutedExpert> out);

// The weights of one expert, in the order in which the operator names them.
struct ExpertWeights {
  const WeightRef* gate = nullptr;
  const WeightRef* gate_bias = nullptr;  // this and the other biases: null if there are none
  const WeightRef* up = nullptr;
  const WeightRef* up_bias = nullptr;
  const WeightRef* down = nullptr;
  const WeightRef* down_bias = nullptr;
};
ExpertWeights WeightsOf(const Op& op, int expert);

// What an expert operator reads and writes, in the memory of the device that runs it.
struct ExpertRows {
  const float* x = nullptr;       // [num_rows, width]
  const float* router = nullptr;  // [num_rows, num_experts] logits
  int64_t num_rows = 0;
  float* y = nullptr;  // [num_rows, width]
};

// Runs expert operators; keeps only scratch memory between calls. Thread: one owner.
class ExpertLayer {
 public:
  // Runs `op` (OpKind::kExperts). The result of a row does not depend on the other rows: the
  // outputs of its experts are added in the order of their numbers.
  void Run(const Op& op, const Weights& weights, const ExpertRows& rows, WorkerTeam& team);

 private:
  void RunExpert(const Op& op, int expert, const Weights& weights, const ExpertRows& all,
                 WorkerTeam& team);

  struct RoutedRow {
    int64_t row = 0;
    float weight = 0;
  };
  std::vector<std::vector<RoutedRow>> rows_of_;  // [num_experts]
  std::vector<RoutedExpert> routed_;             // of one row
  std::vector<float> x_, gate_, up_, out_;       // of one expert's rows
};

}  // namespace lamina
