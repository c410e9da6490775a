// A scheduler and the nodes that it plans for (fake_kv_nodes.h), driven step by step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/support/fake_kv_nodes.h"

namespace lamina {

// A scheduler with the nodes that it plans for. Finishes sequences when they have all their tokens.
class FakeCluster {
 public:
  // `placement` is not null.
  FakeCluster(const SchedulerOptions& options, const std::vector<KvNode>& nodes,
              std::unique_ptr<QueuePolicy> queue = MakeFifoQueue(),
              std::unique_ptr<PlacementPolicy> placement = MakeLeastLoadedPlacement());

  // With prefix caching the prompts of some ids are alike as far as they go.
  std::vector<TokenId> Prompt(SequenceId id, int64_t num_tokens) const;

  Status Add(uint64_t id, int64_t prompt_tokens, int64_t max_new_tokens, uint64_t group = 0);
  struct Urgency {  // as SequenceSpec's
    int priority = 0;
    TimePoint start = {};
    Slo slo = {};
  };
  Status Add(uint64_t id, int64_t prompt_tokens, int64_t max_new_tokens, const Urgency& urgency);
  void Finish(uint64_t id);
  void Fail(uint64_t id);
  void AddNode(const KvNode& node);
  LostSequences LoseNode(uint32_t node);
  void Again(uint64_t id);
  // No step in flight will be completed; nodes keep their KV.
  void Abandon();
  // All nodes forget everything.
  void Restart();
  // Another scheduler takes over what this one leaves, with new numbers; of every fourth sequence
  // it cannot find anything. Returns those that it refuses.
  std::vector<uint64_t> Succeed(std::unique_ptr<QueuePolicy> queue,
                                std::unique_ptr<PlacementPolicy> placement);
  // From Suspend on, rows on the node of steps in flight come back without a sample.
  void Suspend(uint32_t node);
  void Resume(uint32_t node);

  // NextStep; between Plan and Complete the batch's step is in flight.
  StepPlan Plan(int batch = 0);
  void Complete(int batch = 0);
  bool in_flight(int batch) const { return sampled_.contains(batch); }
  StepPlan Step();                            // both
  void RunUntilIdle(int max_steps = 100000);  // all is finished, nothing is held

  // The tokens of sequences that finished with all of them.
  const std::map<SequenceId, std::vector<TokenId>>& results() const { return results_; }
  Scheduler& scheduler() { return *scheduler_; }
  FakeKvNodes& nodes() { return nodes_; }

 private:
  const SchedulerOptions options_;
  FakeKvNodes nodes_;
  std::optional<Scheduler> scheduler_;
  bool succeeded_ = false;  // it is not the first one
  void Recall(SequenceId sequence);
  Status Add(SequenceSpec spec);

  std::map<int, std::vector<Scheduler::Sampled>> sampled_;  // of the steps in flight
  std::set<SequenceId> recalled_;  // in a step in flight that will not count
  std::set<SequenceId> late_;      // in a step in flight that has no sample for them
  std::map<SequenceId, std::vector<TokenId>> results_;
};

}  // namespace lamina
