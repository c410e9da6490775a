// A mixture of experts on a GPU. The host decides by RouteRow (experts.h) which row goes to which
// expert. The rows of each expert are then gathered, run and added on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "compute_node/cuda/cuda_engine.h"
#include "compute_node/cuda/cuda_weights.h"
#include "compute_node/experts.h"
#include "model/graph.h"

namespace lamina {

// Thread: one owner.
class CudaExperts {
 public:
  // Runs `op` (OpKind::kExperts). The outputs of a row's experts are added in the order of their
  // numbers. Waits once for the GPU, for the router's logits.
  void Run(const Op& op, const CudaWeights& weights, const ExpertRows& rows, CudaEngine& engine);

 private:
  // Rows of one expert: [begin, end) of the lists below.
  struct Range {
    size_t begin = 0, end = 0;
  };
  void Route(const Op& op, const float* router, int64_t rows, CudaEngine& engine);
  void RunExpert(const Op& op, int expert, const CudaWeights& weights, const ExpertRows& all,
                 CudaEngine& engine);

  std::vector<Range> ranges_;   // [num_experts]
  std::vector<int32_t> rows_;   // the rows of each expert, expert by expert
  std::vector<float> factors_;  // by which the output of each of these rows is multiplied
  std::vector<float> gates_;    // their logits, whose sigmoids are taken on the device
  cuda::DeviceBuffer routes_;   // copies of rows_, factors_ and, if they are used, gates_
  cuda::DeviceBuffer values_;   // of one expert's rows: x, gate, up
};

}  // namespace lamina
