// Nodes whose prompts appear without being computed, so that decoding at a long context can be
// measured without minutes of prefill.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "cost/cost_model.h"
#include "manager/step_executor.h"

namespace lamina {

// A decorator. Prompts get their token slots, and K and V that are made up where they are stored;
// the compute node hears of a sequence when it decodes first. Everything from a sequence's second
// token on is as without it. Also writes down every step.
class PrefilledExecutor : public StepExecutor {
 public:
  explicit PrefilledExecutor(std::unique_ptr<StepExecutor> nodes) : nodes_(std::move(nodes)) {}

  struct Step {
    int batch = 0;
    TimePoint submitted;
    bool decodes_only = true;
    int num_rows = 0;
    std::map<NodeId, AttentionLoad> attention;  // of one layer, by memory node
    Clock::duration compute_node{};             // the step as the compute node saw it
    Clock::duration attention_wait{};           // of that: waiting for memory nodes
  };
  // Those done since the last call. Thread: any.
  std::vector<Step> TakeSteps();

  std::vector<KvNode> kv_nodes() const override { return nodes_->kv_nodes(); }
  std::map<NodeId, NodeKv> kv() const override { return nodes_->kv(); }
  int largest_interval() const override { return nodes_->largest_interval(); }
  std::map<NodeId, ElasticCache> elastic_kv() const override { return nodes_->elastic_kv(); }
  NodeId KvNodeOf(NodeId node) const override { return nodes_->KvNodeOf(node); }
  void Start(std::function<void(ExecutorEvent)> on_event) override;
  void Submit(const StepPlan& plan, std::vector<NewSequence> added) override;
  void Leave(NodeId node) override { nodes_->Leave(node); }
  TimePoint Turn(TimePoint now) override { return nodes_->Turn(now); }
  std::vector<NodeStatus> nodes() override { return nodes_->nodes(); }
  std::vector<NodeStatus> standbys() override { return nodes_->standbys(); }

 private:
  static constexpr TokenId kFirstToken = 0;  // what every prompt is said to be followed by

  void Finish(StepResult& result);

  // Their prompts are there, they have not decoded.
  std::unordered_map<SequenceId, NewSequence> unannounced_;
  Mutex mutex_;
  struct InFlight {
    Step step;
    std::vector<SequenceId> prefilled;  // in it, to their end
  };
  std::map<StepId, InFlight> in_flight_ GUARDED_BY(mutex_);  // by step
  std::vector<Step> steps_ GUARDED_BY(mutex_);
  const std::unique_ptr<StepExecutor> nodes_;  // last: its threads use the members above
};

}  // namespace lamina
