// The rounds of the best schedule that devices' times allow, when nothing else takes time: what a
// measured pipeline is held against.
//
// All steps have the same times: `slices` on a compute node, then or in between `attention` on the
// slowest memory node of each layer. A round takes the longest of
// - a step alone, slices and attention one behind the other,
// - the slices of all batches that share a compute node. Fixed: batch j is on node j mod c, so
// nodes with fewer batches have shorter
//   rounds. Rotational: n batches are spread over c nodes evenly, each node has n / c of them. Two
//   stages or more: likewise,
// - the attention of all batches, as memory nodes do one thing at a time.
// Rotation reaches this if c and n have no common factor, as with n = c + 1: in rounds of P per
// layer, slice k of batch j begins at (j + k) P + j c P / n, so that slices on a compute node are c
// P / n apart and attentions P / n.
#pragma once

#include <vector>

namespace lamina {

struct IdealSchedule {
  int num_compute = 1;  // nodes, or stages
  int num_batches = 1;  // in flight, of equal size
  // All compute nodes share the slices of all batches: rotational, or stages.
  bool evenly = false;
  double slices = 0;     // of one step, seconds
  double attention = 0;  // likewise, on the slowest memory node in each layer
  // Likewise, mean over the memory nodes: no order of batches keeps all of them busy for less.
  double memory_busy = 0;
};

// Seconds from one step of a batch to its next, by batch. Where the memory nodes are too slow for
// all, those batches wait that would be ahead of the others.
std::vector<double> IdealRounds(const IdealSchedule& schedule);

}  // namespace lamina
