// Which part of a model each of several compute nodes runs when no node holds all of it, and so
// which weights each needs.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "model/graph.h"
#include "splitter/slices.h"

namespace lamina {

// One node's share. The n-th of a model's compute nodes has stage n / num_ranks and rank n %
// num_ranks.
struct ModelShare {
  // Pipeline parallelism: a stage runs a range of the slices.
  int num_stages = 1, stage = 0;
  // Tensor parallelism: the ranks of a stage run each of its slices together.
  int num_ranks = 1, rank = 0;

  bool whole() const { return num_stages == 1 && num_ranks == 1; }
};

// Returns the first slice of each stage, and the number of slices behind them. Among all cuts the
// largest stage has as few matrix elements as possible, which are what a step takes time and memory
// for. kInvalidArgument if num_stages is less than 1 or more than there are slices.
Result<std::vector<int>> CutIntoStages(const SlicedModel& model, int num_stages);

// Slices [first, end) of a model.
struct SliceRange {
  int first = 0, end = 0;
};

// The operators of `range` that a node with that share runs, in one graph with all of the model's
// values: the ones whose weights it must hold. What follows the last all-reduce, the head, is left
// to rank 0, which samples. `model` is the sliced graph of that rank (splitter/tensor_parallel.h).
Graph PartOf(const SlicedModel& model, const ModelShare& share, const SliceRange& range);

// "layers 0..16", for people. A model is cut at attentions, so two stages name the layer between
// them: its projections to q, k and v are in one, the rest of it is in the other.
std::string DescribeShare(const SlicedModel& model, const ModelShare& share,
                          const SliceRange& range);

}  // namespace lamina
