// Carries out ComputeOrders: slices, attention, sampling. This is where a decode step happens on a
// compute node.
//
// Each batch has at most one step under way. While memory nodes compute the attention of one batch,
// slices of another are run. Several compute nodes divide the work in one of three ways: each runs
// whole batches; or each runs some of the slices of every batch, and the batch's context goes from
// node to node; or several run each slice together, and a batch also waits at all-reduces, while
// other batches run.
//
// Use: Begin for each order; then Advance again and again, and Sleep when it has nothing to do.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "compute_node/all_reduce.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/compute_device.h"
#include "compute_node/context_exchange.h"
#include "compute_node/context_relay.h"
#include "compute_node/step.h"
#include "compute_node/step_trace.h"
#include "splitter/placement.h"
#include "wire/session_messages.h"
#include "wire/step_messages.h"

namespace lamina {

// Thread: one owner.
class StepRunner {
 public:
  // Borrows model and device. kOutOfSpace if the values of all batches' steps do not fit into the
  // device's memory; kUnimplemented if the device cannot run an operator of the model.
  static Result<std::unique_ptr<StepRunner>> Create(const LoadedModel& model,
                                                    const SessionLimits& limits,
                                                    std::unique_ptr<AttentionStrategy> attention,
                                                    ComputeDevice& device);

  // Makes devices end their waits for memory nodes early: freeing memory of a device waits for what
  // is under way on it.
  ~StepRunner() { session_.attention->GiveUp(); }
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Begins the step of an order. kInvalidArgument if there is no such batch, its last step is still
  // under way, this node has a share of the model and has not joined the others yet, the interval
  // is negative, or there is no KV cache here whose layers the order could move; the order stays as
  // it is then. Other errors are those of KvCache::SetLayersInside, when this node has learnt of
  // the order's sequences.
  Status Begin(ComputeOrder&& order);

  // Makes this one of several compute nodes. Contexts and partial sums travel in `wire_dtype`.
  // REQUIRES: no step was begun, and memory nodes hold the KV.
  void JoinOthers(std::unique_ptr<ContextExchange> others, DType wire_dtype);

  // The manager has lost a memory node: nothing is waited for that would come from it, and its rows
  // of steps under way fail. Unknown nodes are ignored.
  void LoseMemoryNode(NodeId node, const std::string& why) { session_.attention->Lose(node, why); }

  // What is known of memory nodes apart from results, see AttentionStrategy.
  std::vector<PeerState> TakePeerStates() { return session_.attention->TakePeerStates(); }

  // Whether no step is under way, everything that is for other compute nodes has left, and no
  // memory node is suspended.
  bool idle() const {
    return !any_under_way() && (others_ == nullptr || !others_->unsent()) &&
           !session_.attention->suspends();
  }
  bool among_several() const { return others_ != nullptr; }

  // Runs the next slice of a batch whose attention is complete; returns false if there is none. If
  // a step ends with it here, appends its result to `results`. What goes wrong in a step is in its
  // result, by sequence and by node. A step fails as a whole only if another compute node is lost;
  // then all steps under way end.
  bool Advance(std::vector<StepResult>& results);

  // When Advance is to be called again if nothing comes before.
  TimePoint wake_at() const { return session_.attention->wake_at(); }

  // Sleeps until Advance may have something to do, or one of `fds` is readable. REQUIRES: not
  // idle(), and Advance has just returned false.
  void Sleep(std::span<const int> fds) {
    session_.attention->Sleep(fds, others_ == nullptr ? Deadline(TimePoint::max())
                                                      : Deadline::After(others_->sign_interval()));
  }

  StepTrace& trace() { return session_.trace; }

  // Of this node's own KV cache; null: there is none, or as many have a place as at first.
  const ElasticLayers* layers() const {
    const KvCache* const kv = session_.attention->capabilities().own_kv;
    return kv == nullptr ? nullptr : kv->elastic_layers();
  }

 private:
  StepRunner(const LoadedModel& model, const SessionLimits& limits,
             std::unique_ptr<AttentionStrategy> attention, ComputeDevice& device);

  bool any_under_way() const { return std::ranges::any_of(steps_, &Step::under_way); }
  // Where the slices of the order's step run.
  StepPlace PlaceOf(const ComputeOrder& order) const;
  // The step that is to run next; null if none is ready.
  Step* NextReady();
  // Whether everything that the step's next slice needs is here. Takes what has come for it.
  bool Ready(Step& step);
  // Runs the step's next slice, or the part of it up to an all-reduce, and starts what follows.
  void RunSlice(Step& step);
  void RunToAttention(Step& step);
  // Does what was put off until memory nodes have stored what the step has pushed; PutOff puts it
  // off, but not if that is so already.
  void GoOn(Step& step);
  void PutOff(Step& step, WhenStored then, const Op* sum = nullptr);
  // Samples and completes the result.
  void End(Step& step);
  // Ends all steps under way, because another compute node is lost.
  void AbandonAll(const LostNode& lost, std::vector<StepResult>& results);

  // The rest is for ranks, which run each slice together.
  bool Reducing(const Step& step) const {
    return !sums_.empty() && sums_[step.batch()].under_way();
  }
  // Sends this rank's part of a sum. After the step's last sum only rank 0 goes on.
  void Reduce(Step& step, const Op& op);
  void HandOver(Step& step);
  // Adds up a sum whose parts have all come. False if a rank is lost.
  bool TakeSum(Step& step);

  const SessionLimits limits_;
  StepSession session_;
  std::vector<Step> steps_;                  // by batch
  uint32_t last_ = 0;                        // the batch that ran last
  std::vector<StepResult> results_;          // of steps that have ended since Advance began
  std::unique_ptr<ContextExchange> others_;  // null: this is the only compute node
  std::unique_ptr<ContextRelay> relay_;      // null as well
  std::vector<AllReduce> sums_;              // by batch; empty: each slice runs on one node
  Placement placement_;
};

}  // namespace lamina
