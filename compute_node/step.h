// One step of one batch on this compute node: its rows, the slices that run here and their
// attention. How far it has come is step_course.h, and what has come of it step_outcome.h. Whoever
// drives it (step_runner.h) decides what runs when; how a step goes from node to node is
// context_relay.h, how ranks add up their parts is all_reduce.h.
#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/compute_device.h"
#include "compute_node/step_course.h"
#include "compute_node/step_outcome.h"
#include "compute_node/step_rows.h"
#include "compute_node/step_trace.h"
#include "wire/step_messages.h"

namespace lamina {

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
  Step(StepSession& session, uint32_t batch, std::unique_ptr<SliceRunner> slices);

  // Begins the step of an order. REQUIRES: !under_way(), a slice of the step runs here, and the
  // session's sequences were updated with the order.
  void Begin(const ComputeOrder& order, const StepPlace& place);
  // Nothing more of the step runs here.
  void Leave();
  bool under_way() const { return under_way_; }

  uint32_t batch() const { return batch_; }
  StepId id() const { return outcome_.step(); }
  const StepRows& rows() const { return rows_; }
  SliceRunner& slices() { return *slices_; }
  AttentionStep& attention() { return *attention_; }
  StepCourse& course() { return course_; }
  const StepCourse& course() const { return course_; }
  StepOutcome& outcome() { return outcome_; }
  TracedWork Traced(int layer) const {
    return {id(), static_cast<int>(batch_), layer, rows_.size()};
  }

  // The rows of the next slice; the last one needs only those that StepRows::kept names.
  size_t num_rows() const { return course_.at_last_slice() ? rows_.kept.size() : rows_.size(); }
  // The attention before and behind it. REQUIRES: it is not the first; not the last.
  const Op& attention_before() const { return AttentionBehind(course_.next_slice() - 1); }
  const Op& attention_behind() const { return AttentionBehind(course_.next_slice()); }

  // The following run the next slice: Enter; then, if q goes first, RunToQueries and SendQueries;
  // then Run. What stops at an all-reduce returns it, and is called again when its sum is there.
  // REQUIRES: the slice's context and the attention before it are complete.
  void Enter();
  const Op* RunToQueries();
  // Sends q for the node that runs the slice behind this one: `taker`, 0 if that is this node.
  void SendQueries(NodeId taker);
  const Op* Run();
  // The values of the attention behind the slice. REQUIRES: the slice has run.
  AttentionValues values();
  // Asks for the attention behind the slice, for this node, and advances.
  void StartAttention();

  // Adds what has come of the attention, and `stale_messages` from other compute nodes, to the
  // outcome.
  void Account(int64_t stale_messages);
  // Ends the timing of the step here and adds this node's times to the outcome.
  void TellTimes();

  // The last slice has run: chooses tokens for the sampled rows, says how likely tokens of prompts
  // are and what the hidden states of embedded rows are, and returns the step's result.
  StepResult End();
  // The step is given up because another compute node is lost.
  StepResult Abandon(const LostNode& lost);

 private:
  const Slice& SliceOf(int slice) const {
    return session_.model.sliced.slices[static_cast<size_t>(slice)];
  }
  const Op& AttentionBehind(int slice) const {
    return session_.model.sliced.attentions[static_cast<size_t>(SliceOf(slice).attention)];
  }
  void Score();
  void Embed();
  void Sample();

  StepSession& session_;
  const uint32_t batch_;
  std::unique_ptr<SliceRunner> slices_;

  bool under_way_ = false;
  StepRows rows_;
  AttentionStep* attention_ = nullptr;
  StepCourse course_;
  StepOutcome outcome_;
};

}  // namespace lamina
