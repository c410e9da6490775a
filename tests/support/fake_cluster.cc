#include "tests/support/fake_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace lamina {

FakeCluster::FakeCluster(const SchedulerOptions& options, const std::vector<KvNode>& nodes,
                         std::unique_ptr<QueuePolicy> queue,
                         std::unique_ptr<PlacementPolicy> placement)
    : options_(options), nodes_(options, placement->spreads()) {
  scheduler_.emplace(options, std::move(queue), std::move(placement));
  for (const KvNode& node : nodes) AddNode(node);
}

std::vector<TokenId> FakeCluster::Prompt(SequenceId id, int64_t num_tokens) const {
  constexpr uint64_t kTexts = 4;
  return MakePrompt(options_.prefix_caching ? SequenceId{id.value % kTexts} : id, num_tokens);
}

Status FakeCluster::Add(uint64_t id, int64_t prompt_tokens, int64_t max_new_tokens,
                        uint64_t group) {
  return Add({SequenceId{id}, Prompt(SequenceId{id}, prompt_tokens), max_new_tokens, group});
}

Status FakeCluster::Add(uint64_t id, int64_t prompt_tokens, int64_t max_new_tokens,
                        const Urgency& urgency) {
  SequenceSpec spec{SequenceId{id}, Prompt(SequenceId{id}, prompt_tokens), max_new_tokens};
  spec.priority = urgency.priority;
  spec.start = urgency.start;
  spec.slo = urgency.slo;
  return Add(std::move(spec));
}

Status FakeCluster::Add(SequenceSpec spec) {
  Status status = scheduler_->Add(spec);
  if (status.ok()) nodes_.Accept(spec);
  return status;
}

void FakeCluster::Finish(uint64_t id) {
  scheduler_->Finish(SequenceId{id});
  nodes_.Forget(SequenceId{id});
  // As the manager does: nothing is reported for a sequence that is over.
  for (auto& [batch, sampled] : sampled_)
    std::erase_if(sampled,
                  [&](const Scheduler::Sampled& one) { return one.sequence == SequenceId{id}; });
}

void FakeCluster::Fail(uint64_t id) {
  scheduler_->Fail(SequenceId{id});
  nodes_.Distrust(SequenceId{id});
  Finish(id);
}

void FakeCluster::AddNode(const KvNode& node) {
  scheduler_->AddNode(node);
  nodes_.AddNode(node);
}

LostSequences FakeCluster::LoseNode(uint32_t node) {
  LostSequences lost = scheduler_->LoseNode(NodeId{node});
  nodes_.LoseNode(NodeId{node});
  for (const SequenceId id : lost.again) {
    EXPECT_FALSE(scheduler_->IsParked(id));
    Recall(id);
  }
  for (const SequenceId id : lost.parked) {
    EXPECT_TRUE(scheduler_->IsParked(id));
    Recall(id);
  }
  return lost;
}

void FakeCluster::Again(uint64_t id) {
  scheduler_->Again(SequenceId{id});
  nodes_.Distrust(SequenceId{id});
  if (nodes_.holds(SequenceId{id})) Recall(SequenceId{id});
}

// Its answers may still arrive, and must not count.
void FakeCluster::Recall(SequenceId sequence) {
  if (nodes_.Recall(sequence)) recalled_.insert(sequence);
}

void FakeCluster::Suspend(uint32_t node) {
  const std::vector<SequenceId> again = scheduler_->Suspend(NodeId{node});
  nodes_.Suspend(NodeId{node});
  for (const SequenceId id : again) {
    EXPECT_TRUE(nodes_.holds(id));
    Recall(id);
  }
  for (const auto& [batch, sampled] : sampled_) {
    for (const auto& [id, token] : sampled) {
      if (!recalled_.contains(id) && nodes_.SitsOut(id) && late_.insert(id).second)
        nodes_.BeLate(id);
    }
  }
}

void FakeCluster::Resume(uint32_t node) {
  scheduler_->Resume(NodeId{node});
  nodes_.Resume(NodeId{node});
}

void FakeCluster::Abandon() {
  scheduler_->AbandonSteps();
  recalled_.clear();
  late_.clear();
  std::vector<Scheduler::Sampled> never_told;
  for (const auto& [batch, sampled] : std::exchange(sampled_, {}))
    never_told.insert(never_told.end(), sampled.begin(), sampled.end());
  nodes_.Abandon(never_told, scheduler_->Held());
}

std::vector<uint64_t> FakeCluster::Succeed(std::unique_ptr<QueuePolicy> queue,
                                           std::unique_ptr<PlacementPolicy> placement) {
  constexpr uint64_t kManager = 7;
  succeeded_ = true;
  recalled_.clear();
  late_.clear();
  std::vector<Scheduler::Sampled> never_told;
  for (const auto& [batch, sampled] : std::exchange(sampled_, {}))
    never_told.insert(never_told.end(), sampled.begin(), sampled.end());
  const std::vector<NodeUse> pools = scheduler_->stats().nodes;
  std::vector<FakeKvNodes::Left> left = nodes_.TakeLeft(never_told);
  scheduler_.emplace(options_, std::move(queue), std::move(placement));
  for (const NodeUse& pool : pools) scheduler_->AddNode({pool.id, pool.capacity_tokens});
  for (FakeKvNodes::Left& one : left) {
    one.spec.left = {one.spec.id, kManager};
    if (!one.slots.empty() && one.spec.id.value % 4 != 0)
      scheduler_->AddLeft(one.spec.left, one.node, one.slots);
  }
  std::vector<uint64_t> refused;
  for (const FakeKvNodes::Left& one : left) {
    const int64_t num_left_before = scheduler_->stats().num_left_tokens;
    if (scheduler_->Add(one.spec).ok()) {
      nodes_.Accept(one.spec);
      if (scheduler_->stats().num_left_tokens > num_left_before)
        nodes_.GoesOn(one.spec.id, one.node);
    } else {
      refused.push_back(one.spec.id.value);
    }
  }
  return refused;
}

void FakeCluster::Restart() {
  Abandon();
  for (const NodeUse& node : scheduler_->stats().nodes) {
    scheduler_->DropKv(node.id);
    nodes_.DropKv(node.id);
  }
}

StepPlan FakeCluster::Plan(int batch) {
  StepPlan plan = scheduler_->NextStep(batch);
  EXPECT_EQ(plan.batch, batch);
  const std::vector<Scheduler::Sampled> sampled = nodes_.Run(plan);
  if (!plan.work.empty()) sampled_[batch] = sampled;
  return plan;
}

void FakeCluster::Complete(int batch) {
  const auto in_flight = sampled_.find(batch);
  if (in_flight == sampled_.end()) return;
  std::vector<Scheduler::Sampled> sampled = in_flight->second;
  sampled_.erase(in_flight);
  std::erase_if(sampled, [&](const Scheduler::Sampled& one) {
    return !recalled_.contains(one.sequence) && late_.contains(one.sequence);
  });
  std::vector<size_t> counting;
  for (size_t i = 0; i < sampled.size(); ++i) {
    const bool counts = !recalled_.contains(sampled[i].sequence);
    EXPECT_EQ(scheduler_->IsInStep(sampled[i].sequence, batch), counts);
    if (counts) counting.push_back(i);
  }
  EXPECT_EQ(scheduler_->CompleteStep(sampled, batch), counting);
  for (const SequenceId id : nodes_.Completed(batch)) {
    recalled_.erase(id);
    late_.erase(id);
  }
  for (const size_t i : counting) {
    const SequenceId id = sampled[i].sequence;
    if (!nodes_.done(id)) continue;
    const std::span<const TokenId> tokens = scheduler_->Tokens(id);
    results_[id].assign(tokens.begin(), tokens.end());
    Finish(id.value);
  }
}

StepPlan FakeCluster::Step() {
  StepPlan plan = Plan();
  Complete();
  return plan;
}

// One batch after the other, with the others in flight.
void FakeCluster::RunUntilIdle(int max_steps) {
  int num_steps = 0, num_idle = 0;
  for (int batch = 0; num_idle <= options_.num_batches;
       batch = (batch + 1) % options_.num_batches) {
    if (in_flight(batch)) Complete(batch);
    num_idle = Plan(batch).empty() ? num_idle + 1 : 0;
    if (++num_steps == max_steps || ::testing::Test::HasFailure()) break;
  }
  EXPECT_LT(num_steps, max_steps) << "no end";
  const SchedulerStats stats = scheduler_->stats();
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting + stats.num_parked, 0) << "sequences wait for ever";
  for (const NodeUse& node : stats.nodes) EXPECT_EQ(node.used_tokens + node.num_sequences, 0);
  EXPECT_EQ(nodes_.num_held_tokens(), 0);
  // Nodes hear nothing of one that was preempted before they knew that it goes on.
  EXPECT_GE(stats.num_preemptions, nodes_.num_preemptions());
  if (!succeeded_) {
    EXPECT_EQ(stats.num_preemptions, nodes_.num_preemptions());
  }
}

}  // namespace lamina
