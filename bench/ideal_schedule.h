// The rounds of the best schedule that the devices' times allow, if nothing else took time: what a
// measured pipeline is held against.
//
// All steps have the same times: `slices` on a compute node and `attention` on the slowest memory
// node of each layer, in turn. A round (scheduler/round.h), from one step of a batch to its next,
// takes the longest of
//
// - a step by itself: its slices and attention one after the other;
// - the slices of all batches that share a compute node. With fixed pipelines batch j is on node
//   j mod c, so that nodes with fewer batches have shorter rounds. With rotational ones n batches
//   are spread evenly over c nodes, n / c for each; with stages of a model likewise;
// - the attention of all batches, as memory nodes do one thing at a time.
//
// Rotation reaches this if c and n have no common factor, as with n = c + 1: in rounds of P per
// layer, slice k of batch j begins at (j + k) P + j c P / n, so that slices on a compute node are c
// P / n apart, and attentions P / n.
#pragma once

#include <vector>

namespace lamina {

// What a round depends on. Times are in seconds, of one step.
struct IdealSchedule {
  int num_compute = 1;  // nodes, or stages
  int num_batches = 1;  // in flight, of equal size
  // All compute nodes share the slices of all batches: the pipeline is rotational, or there are
  // stages.
  bool evenly = false;
  double slices = 0;
  // The attention of a step on the slowest memory node in each layer.
  double attention = 0;
  // The attention of a step as the mean over the memory nodes. No order of batches keeps all of
  // them busy for less.
  double memory_busy = 0;
};

// Seconds from one step of a batch to its next, for each batch. Where memory nodes are too slow for
// all batches, those that would be faster than the others wait.
std::vector<double> IdealRounds(const IdealSchedule& schedule);

}  // namespace lamina
