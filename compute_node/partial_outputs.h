// Outputs of rows whose tokens lie on several memory nodes, or whose heads have sinks: each node
// answers with attention over its own tokens, and these partials, a sink being one more, are merged
// here, on the host.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compute_node/compute_device.h"
#include "kernels/attention.h"

namespace lamina {

// The partials of one step, layer after layer. Allocates only when a step has more such rows than
// every step before it. Thread: one owner.
class PartialOutputs {
 public:
  // `shape` is that of all heads.
  explicit PartialOutputs(const AttentionShape& shape) : shape_(shape) {}

  // A step begins: no row has partials.
  void Clear() { rows_.clear(); }
  // Row `row` of the step has partials. REQUIRES: ascending.
  void Add(int row) { rows_.push_back(row); }
  bool empty() const { return rows_.empty(); }

  // A layer begins: nothing has been merged but the heads' sinks, [num_heads], if there are some.
  void BeginLayer(std::span<const float> sinks);

  // Attention of heads [first_head, first_head + num_heads) over some tokens of a row.
  struct Part {
    int first_head = 0, num_heads = 0;
    const std::byte* out = nullptr;  // [num_heads, head_dim] of `dtype`
    DType dtype = DType::kF32;
    const float* lse = nullptr;  // [num_heads], natural log-sum-exp
  };
  // Merges the part into what there is of `row`. REQUIRES: the row was added.
  void Merge(int row, const Part& part);

  // Copies the merged rows to their places in `out`, [rows of the step, num_heads, head_dim] in the
  // device's memory.
  void CopyTo(ComputeDevice& device, float* out) const;

 private:
  size_t width() const {
    return static_cast<size_t>(shape_.num_heads) * static_cast<size_t>(shape_.head_dim);
  }

  const AttentionShape shape_;
  std::vector<int> rows_;      // ascending
  std::vector<float> merged_;  // [rows_, num_heads, head_dim]
  std::vector<float> lse_;     // [rows_, num_heads]
  std::vector<float> part_;    // scratch: [num_heads, head_dim] of one node
};

}  // namespace lamina
