// Which compute node runs which slice of which batch. Nodes, the manager and the simulator ask the
// same value, so they cannot disagree.
#pragma once

#include <utility>
#include <vector>

namespace lamina {

// The compute nodes of a cluster are counted from 0, in the order in which they join each other.
// Immutable. Pure.
class Placement {
 public:
  // Each of `num_nodes` nodes holds the whole model. Of a batch that does not rotate one node runs
  // all slices; of a batch that rotates (scheduler/pipeline.h) the next node runs the next slice.
  // REQUIRES: num_nodes >= 1.
  static Placement OfWhole(int num_nodes) { return Placement({}, num_nodes); }

  // The nodes hold the model together: those of stage s run slices [first_slices[s],
  // first_slices[s + 1]), and the num_ranks nodes of a stage run each of them together. They are
  // counted stage by stage. `first_slices` is as CutIntoStages (splitter/model_share.h) returns it.
  // REQUIRES: num_ranks >= 1, and at least one stage.
  static Placement OfStages(std::vector<int> first_slices, int num_ranks) {
    return {std::move(first_slices), num_ranks};
  }

  // The node that runs slice `slice` of batch `batch`, or with ranks the one of them that is
  // `rank`. Slices and batches are counted from 0. With stages `rotates` has no meaning.
  // REQUIRES: rank is less than the number of ranks, and 0 where nodes hold the whole model; with
  // stages the model has such a slice.
  int RunnerOf(int batch, int slice, bool rotates, int rank = 0) const {
    if (first_slices_.empty()) return (batch + (rotates ? slice : 0)) % width_;
    return StageOf(slice) * width_ + rank;
  }

 private:
  Placement(std::vector<int> first_slices, int width)
      : first_slices_(std::move(first_slices)), width_(width) {}
  int StageOf(int slice) const;

  std::vector<int> first_slices_;  // [stages + 1]; empty where each node holds the whole model
  int width_;                      // nodes with the whole model, or the ranks of a stage
};

}  // namespace lamina
