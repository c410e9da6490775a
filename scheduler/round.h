// How long a round takes, in which each batch in flight takes one step, and so each of its
// sequences gets one token. The manager chooses pipelines by it, the planner clusters, and
// benchmarks hold what they measured against it.
#pragma once

#include <algorithm>

namespace lamina {

// Of how many batches one compute node runs the slices in a round: the node that batch `batch` is
// on. With `evenly` all nodes share the slices of all batches, because the pipeline rotates or each
// node has its own range of slices; else batch j is on node j mod num_nodes, and no node has more
// than that of batch 0. REQUIRES: 0 <= batch < num_batches, num_nodes >= 1.
inline double StepsOnNodeOf(int batch, int num_batches, int num_nodes, bool evenly) {
  if (evenly) return static_cast<double>(num_batches) / num_nodes;
  return (num_batches - 1 - batch % num_nodes) / num_nodes + 1;
}

// What a round is made of, in seconds. What stays 0 does not limit it.
struct RoundTimes {
  // One step by itself: slices, attention and messages, one after the other.
  double step = 0;
  // The slices of one step, on a compute node.
  double slices = 0;
  // What a compute node does besides slices of decode steps, in a round.
  double prompts = 0;
  // The attention of one step, on the memory nodes, which do one thing at a time.
  double attention = 0;
  // What the busiest NIC sends or gets in a round.
  double nics = 0;
};

// The longest of what the round has to wait for: a step by itself, a compute node with the slices
// of `steps_on_node` steps, the memory nodes with the attention of all batches, and the NICs.
inline double RoundSeconds(const RoundTimes& times, double steps_on_node, int num_batches) {
  return std::max({times.step, steps_on_node * times.slices + times.prompts,
                   num_batches * times.attention, times.nics});
}

}  // namespace lamina
