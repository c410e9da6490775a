// What has come of a step so far: who failed, what its attention has cost, how long it took. It
// becomes the step's result, or travels with the step to another compute node.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "base/clock.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/step_trace.h"
#include "wire/step_messages.h"

namespace lamina {

// The object is used for one step of its batch after the other. Thread: one owner.
class StepOutcome {
 public:
  // A step begins, whose times are recorded by `trace`.
  void Begin(const ComputeOrder& order, StepTrace& trace);

  StepId step() const { return result_.step; }
  // The sequence gets no token in this step. If several things fail it, here, on other ranks and on
  // the nodes before, the first with kKvLost is told; without one, the first of all. For a sequence
  // whose KV is lost the rest may be a consequence, such as logits that are not numbers; and what
  // is the request's own shows once more when it was started again.
  void Fail(SequenceId sequence, FailureCause cause, Status why);
  // Whether a token is to be chosen for the sequence: it has not failed and is not late.
  bool goes_on(SequenceId sequence) const {
    return !failed_.contains(sequence) && !late_.contains(sequence);
  }
  void AddToken(NewToken token) { result_.sampled.push_back(std::move(token)); }
  void AddScores(ScoredTokens scored) { result_.scored.push_back(std::move(scored)); }
  void AddEmbedding(EmbeddedPrompt embedded) { result_.embedded.push_back(std::move(embedded)); }

  // Adds what has failed or is late in the step's attention, the nodes that it goes on without,
  // those that are lost in `all`, and the traffic since the last call; and `stale_messages` from
  // other compute nodes.
  void Account(AttentionStep& attention, const AttentionStrategy& all, int64_t stale_messages);
  // Ends the timing of the step here, and adds this node's times: `self` is its name in the result,
  // 0 if no other node adds times.
  void TellTimes(StepTrace& trace, const TracedWork& of, NodeId self);

  // What is known so far, failures included, to be told to another compute node.
  StepResult SoFar() const;
  // Goes on from what the node that ran the slices before has told.
  void GoOnFrom(StepResult so_far);
  // Adds what another rank has told of its part of the step.
  void AddRank(const StepResult& rank);

  // Completes the result but for this node's times.
  void Complete();
  // The step is given up because another compute node is lost.
  void Abandon(const LostNode& lost) { result_.lost_nodes.push_back(lost); }
  StepResult Take() { return std::move(result_); }

 private:
  std::map<SequenceId, FailedSequence> failed_;
  std::set<SequenceId> late_;  // get no token and do not fail
  StepResult result_;          // without them, until Complete
  AttentionTraffic counted_;   // the part of the traffic that is in the result already
  TimePoint start_{};
  int64_t start_ns_ = 0;  // 0: not timed
};

}  // namespace lamina
