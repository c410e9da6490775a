// One step of one batch on this compute node: its rows, the slices that run here, their attention,
// and what has come of it so far. Whoever drives it (step_runner.h) decides what runs when; how a
// step goes from node to node is context_relay.h, how ranks add up their parts is all_reduce.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/compute_device.h"
#include "compute_node/step_rows.h"
#include "compute_node/step_trace.h"
#include "splitter/placement.h"
#include "wire/step_messages.h"

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

// What the steps of a session share. Borrows model and device. Thread: one owner.
struct StepSession {
  const LoadedModel& model;
  ComputeDevice& device;
  const std::unique_ptr<AttentionStrategy> attention;
  KnownSequences sequences;
  StepTrace trace = StepTrace();
  NodeId self = {};  // this node, if others add their times to the same results; otherwise 0
};

// The object is used for one step of its batch after the other. Thread: one owner.
class Step {
 public:
  // Borrows the session.
  Step(StepSession& session, uint32_t batch, std::unique_ptr<SliceRunner> slices)
      : session_(session), batch_(batch), slices_(std::move(slices)) {}

  // Begins the step of an order. REQUIRES: !under_way(), a slice of the step runs here, and the
  // session's sequences were updated with the order.
  void Begin(const ComputeOrder& order, const StepPlace& place);
  // Nothing more of the step runs here.
  void Leave();

  uint32_t batch() const { return batch_; }
  bool under_way() const { return under_way_; }
  StepId id() const { return result_.step; }
  const StepRows& rows() const { return rows_; }
  const StepPlace& place() const { return place_; }
  SliceRunner& slices() { return *slices_; }
  AttentionStep& attention() { return *attention_; }
  TracedWork Traced(int layer) const {
    return {id(), static_cast<int>(batch_), layer, rows_.size()};
  }

  int num_slices() const { return static_cast<int>(session_.model.sliced.slices.size()); }
  // The slice that runs, or that runs here next; num_slices() if no further one does.
  int next_slice() const { return next_slice_; }
  bool at_last_slice() const { return slice().attention < 0; }
  // The rows of that slice; the last one needs only those that are sampled.
  size_t num_rows() const { return at_last_slice() ? rows_.sampled.size() : rows_.size(); }
  // The attention before and behind it. REQUIRES: it is not the first; not the last.
  const Op& attention_before() const { return AttentionBehind(next_slice_ - 1); }
  const Op& attention_behind() const { return AttentionBehind(next_slice_); }

  // Whether the slice before the next one ran elsewhere, and its context has not been taken.
  bool lacks_context() const { return lacks_context_; }
  void HasContext() { lacks_context_ = false; }
  // When waiting for that context began.
  TimePoint waits_since() const { return waits_since_; }
  void WaitFromNow() { waits_since_ = Clock::now(); }

  // The following run the next slice: Enter; then, if q goes first, RunToQueries and SendQueries;
  // then Run. What stops at an all-reduce returns it, and is called again when its sum is there.
  // REQUIRES: the slice's context and the attention before it are complete.
  void Enter();
  bool sent_queries() const { return sent_queries_; }
  const Op* RunToQueries();
  // Sends q for the node that runs the slice behind this one: `taker`, 0 if that is this node.
  void SendQueries(NodeId taker);
  const Op* Run();
  // The values of the attention behind the slice. REQUIRES: the slice has run.
  AttentionValues values();
  // The slice has run: the next one that runs here comes next.
  void Advance();
  // Asks for the attention behind the slice, for this node, and advances.
  void StartAttention();

  // What is to be done with the step once memory nodes have stored what it has pushed
  // (StepTransfer::Stored), because another node goes on from there: its context is passed on, its
  // part of the last sum `sum` is handed over, or it ends.
  enum class WhenStored { kNothing, kPassOn, kHandOver, kEnd };
  WhenStored when_stored() const { return when_stored_; }
  const Op* sum() const { return sum_; }
  void WaitUntilStored(WhenStored then, const Op* sum = nullptr) {
    when_stored_ = then;
    sum_ = sum;
  }

  // Adds failures, lost nodes and traffic of the attention since the last call to the result, and
  // `stale_messages` from other compute nodes.
  void Account(int64_t stale_messages);
  void Fail(SequenceId sequence, Status why) { failures_.emplace(sequence, std::move(why)); }
  // Ends the timing of the step here and adds this node's times to the result.
  void TellTimes();

  // What is known of the step so far, failures included, to be told to another compute node.
  StepResult SoFar() const;
  // Goes on from what the node that ran the slices before has told.
  void GoOnFrom(StepResult so_far);
  // Adds what another rank has told of its part of the step.
  void AddRank(const StepResult& rank);

  // The last slice has run: chooses tokens for the sampled rows, and returns the step's result.
  StepResult End();
  // The step is given up because another compute node is lost.
  StepResult Abandon(const LostNode& lost);

 private:
  const Slice& slice() const {
    return session_.model.sliced.slices[static_cast<size_t>(next_slice_)];
  }
  const Op& AttentionBehind(int slice) const {
    const Slice& of = session_.model.sliced.slices[static_cast<size_t>(slice)];
    return session_.model.sliced.attentions[static_cast<size_t>(of.attention)];
  }
  void Sample();

  StepSession& session_;
  const uint32_t batch_;
  std::unique_ptr<SliceRunner> slices_;

  bool under_way_ = false;
  StepPlace place_;
  StepRows rows_;
  AttentionStep* attention_ = nullptr;
  int next_slice_ = 0;
  bool lacks_context_ = false;
  bool sent_queries_ = false;  // q of the next slice has been sent, k and v have not
  TimePoint waits_since_{};
  WhenStored when_stored_ = WhenStored::kNothing;
  const Op* sum_ = nullptr;

  Failures failures_;
  StepResult result_;
  AttentionTraffic counted_;  // the part of the traffic that is in the result already
  TimePoint start_{};
  int64_t start_ns_ = 0;  // 0: not timed
};

}  // namespace lamina
