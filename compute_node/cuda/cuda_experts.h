// A mixture of experts on a GPU. Which row goes to which expert is decided on the host, as
// experts.h decides it; the rows of each expert are then gathered, run and added on the device.
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
  // Runs `op` (OpKind::kExperts); all in device memory. x, y: [rows, width]; router: [rows,
  // num_experts]. A row's experts are added in the order of their numbers. Waits for the router's
  // logits once.
  void Run(const Op& op, const CudaWeights& weights, const float* x, const float* router,
           int64_t rows, float* y, CudaEngine& engine);

 private:
  // Rows of one expert: [begin, end) of the lists below.
  struct Range {
    size_t begin = 0, end = 0;
  };
  void Route(const Op& op, const float* router, int64_t rows, CudaEngine& engine);
  void RunExpert(const Op& op, int expert, const CudaWeights& weights, const float* x, float* y,
                 CudaEngine& engine);

  std::vector<Range> ranges_;   // [num_experts]
  std::vector<int32_t> rows_;   // expert by expert
  std::vector<float> factors_;  // likewise
  cuda::DeviceBuffer routes_;   // the rows, then the factors
  cuda::DeviceBuffer values_;   // of one expert's rows: x, gate, up
};

}  // namespace lamina
