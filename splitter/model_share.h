// Which part of a model one of several compute nodes runs when no node holds all of it, and so
// which weights it needs.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "model/graph.h"
#include "splitter/slices.h"

namespace lamina {

// Of all compute nodes, number stage * num_ranks + rank has this share.
struct ModelShare {
  int num_stages = 1, stage = 0;  // pipeline parallelism: a stage runs a range of slices
  // Tensor parallelism: the ranks of a stage run each of its slices together.
  int num_ranks = 1, rank = 0;

  bool whole() const { return num_stages == 1 && num_ranks == 1; }
};

// The first slice of each stage, and the number of slices behind them. No cut makes the largest
// stage's matrices smaller, which is what a step takes time and memory for. kInvalidArgument if
// there are fewer slices than stages.
Result<std::vector<int>> CutIntoStages(const SlicedModel& model, int num_stages);

// Slices [first, end) of a model.
struct SliceRange {
  int first = 0, end = 0;
};

// What a node with that share runs of `range`, with the model's values: the operators whose weights
// it holds. What follows the last all-reduce, the head, is for rank 0 alone, which samples.
Graph PartOf(const SlicedModel& model, const ModelShare& share, const SliceRange& range);

// For people: "layers 0..16". A model is cut at an attention, and both stages name that layer: its
// projections to q, k and v are on one, the rest of it is on the other.
std::string DescribeShare(const SlicedModel& model, const ModelShare& share,
                          const SliceRange& range);

}  // namespace lamina
