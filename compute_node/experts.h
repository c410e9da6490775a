// A mixture of experts on this machine's cores: each row goes to a few of many MLPs (Shazeer et al.
// 2017; Mixtral of Experts, section 2.1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/worker_team.h"
#include "compute_node/weights.h"
#include "model/graph.h"

namespace lamina {

// An expert that a row goes to.
struct RoutedExpert {
  int expert = 0;
  float weight = 0;
};

// The out.size() likeliest experts, ascending, with the softmax over their logits; of equal ones
// the first. REQUIRES: 0 < out.size() <= logits.size().
void RouteRow(std::span<const float> logits, std::span<RoutedExpert> out);

// Thread: one owner.
class ExpertLayer {
 public:
  // Runs `op` (OpKind::kExperts). x, y: [rows, width]; router: [rows, num_experts]. A row's result
  // is the same whatever rows are beside it: its experts' outputs are added in the order of their
  // numbers.
  void Run(const Op& op, const Weights& weights, const float* x, const float* router, int64_t rows,
           float* y, WorkerTeam& team);

 private:
  void RunExpert(const Op& op, int expert, const Weights& weights, const float* x, float* y,
                 WorkerTeam& team);

  struct RoutedRow {
    int64_t row = 0;
    float weight = 0;
  };
  std::vector<std::vector<RoutedRow>> rows_of_;  // [num_experts]
  std::vector<RoutedExpert> routed_;
  std::vector<float> x_, gate_, up_, out_;  // of one expert's rows
};

}  // namespace lamina
