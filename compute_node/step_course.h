// How far a step has come on this compute node: which slice runs next, and what has to come before
// that. It knows nothing of rows, devices or messages; step.h runs the slices.
#pragma once

#include "base/clock.h"
#include "model/graph.h"
#include "splitter/placement.h"

namespace lamina {

// Where the slices of a step run. Compute nodes are named by their index, as in Placement. Borrows
// the placement.
struct StepPlace {
  const Placement* placement = nullptr;
  int batch = 0;
  bool rotates = false;
  int rank = 0;  // of this node
  int self = 0;  // the index of this node

  // The node that runs a slice; of several ranks, the one with this node's rank.
  int RunnerOf(int slice) const { return placement->RunnerOf(batch, slice, rotates, rank); }
  bool RunsHere(int slice) const { return RunnerOf(slice) == self; }
  // The first slice from `slice` on that runs here; num_slices if there is none.
  int NextHere(int slice, int num_slices) const {
    while (slice < num_slices && !RunsHere(slice)) ++slice;
    return slice;
  }
};

// What is to be done with a step once memory nodes have stored what it has pushed
// (StepTransfer::Stored), because another node goes on from there: its context is passed on, its
// part of the last sum is handed over, or it ends.
enum class WhenStored { kNothing, kPassOn, kHandOver, kEnd };

// The object is used for one step of its batch after the other. Thread: one owner.
class StepCourse {
 public:
  // The model has so many slices.
  explicit StepCourse(int num_slices) : num_slices_(num_slices) {}

  // A step begins. REQUIRES: a slice of it runs here.
  void Begin(const StepPlace& place);

  const StepPlace& place() const { return place_; }
  int num_slices() const { return num_slices_; }
  // The slice that runs, or that runs here next; num_slices() if no further one does.
  int next_slice() const { return next_slice_; }
  bool at_last_slice() const { return next_slice_ == num_slices_ - 1; }
  // The node that runs the slice before that one, or behind it.
  int runner_before() const { return place_.RunnerOf(next_slice_ - 1); }
  int runner_behind() const { return place_.RunnerOf(next_slice_ + 1); }
  // The slice has run: the next one that runs here comes next.
  void Advance();

  // Whether the slice before the next one ran elsewhere, and its context has not been taken.
  bool lacks_context() const { return lacks_context_; }
  void HasContext() { lacks_context_ = false; }
  // When waiting for that context began.
  TimePoint waits_since() const { return waits_since_; }
  void WaitFromNow() { waits_since_ = Clock::now(); }

  // Whether q of the next slice has been sent, and k and v have not.
  bool sent_queries() const { return sent_queries_; }
  void SentQueries() { sent_queries_ = true; }

  // What was put off, and with kHandOver the sum whose part is handed over.
  WhenStored when_stored() const { return when_stored_; }
  const Op* sum() const { return sum_; }
  void WaitUntilStored(WhenStored then, const Op* sum) {
    when_stored_ = then;
    sum_ = sum;
  }
  // Returns what was put off, which is done now.
  WhenStored TakeWhenStored();

 private:
  const int num_slices_;
  StepPlace place_;
  int next_slice_ = 0;
  bool lacks_context_ = false;
  bool sent_queries_ = false;
  TimePoint waits_since_{};
  WhenStored when_stored_ = WhenStored::kNothing;
  const Op* sum_ = nullptr;
};

}  // namespace lamina
