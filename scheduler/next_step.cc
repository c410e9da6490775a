// Scheduler::NextStep: decoding rows, then prefill chunks of started sequences, then new starts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "scheduler/scheduler_state.h"

namespace lamina {

namespace {

// What placement sees of a node: slots for the growth of its sequences count as used.
NodeLoad LoadOf(const KvPool& pool) {
  int64_t free_tokens = pool.allocator.num_free();
  for (const auto& [arrival, sequence] : pool.running) free_tokens -= sequence->growth();
  return {pool.id, pool.allocator.capacity(), std::max<int64_t>(free_tokens, 0), static_cast<int>(pool.running.size())};
}

}  // namespace

StepPlan Scheduler::NextStep() {
  if (state_->in_flight) {
    std::fprintf(stderr, "lamina: Scheduler::NextStep: the step before is not completed\n");
    std::abort();
  }
  StepPlan plan;
  plan.step = state_->next_step;
  plan.released = std::exchange(state_->released, {});
  state_->PlanDecode(plan);
  state_->PlanPrefill(plan, state_->options.max_num_batched_tokens - static_cast<int64_t>(plan.work.size()));
  if (!plan.empty()) ++state_->next_step.value;
  state_->in_flight = !plan.work.empty();
  return plan;
}

void Scheduler::State::PlanDecode(StepPlan& plan) {
  plan.work.reserve(static_cast<size_t>(num_running) + 1);
  for (auto& [id, pool] : pools) {
    // Oldest first: the newest ones, which are preempted for want of a slot, have no row in this plan yet.
    for (auto it = pool.running.begin(); it != pool.running.end();) {
      Sequence& sequence = *it->second;
      if (!sequence.prefilling) {
        if (!GrowByOne(sequence, plan)) break;
        plan.work.push_back({sequence.id, id, sequence.num_computed, {sequence.tokens.back()}, {sequence.slots.back()}, false, true});
        sequence.num_in_flight = 1;
        sequence.samples = true;
      }
      ++it;
    }
  }
}

// A slot for the token that was sampled last. False: the sequence was the newest on a full node and is preempted itself.
bool Scheduler::State::GrowByOne(Sequence& sequence, StepPlan& plan) {
  if (sequence.slots.size() == sequence.tokens.size()) return true;  // the row is computed again
  KvPool& pool = *sequence.pool;
  while (!pool.allocator.Allocate(1, sequence.slots)) {
    Sequence& newest = *std::prev(pool.running.end())->second;
    Preempt(newest, plan);
    if (&newest == &sequence) return false;
  }
  return true;
}

void Scheduler::State::Preempt(Sequence& sequence, StepPlan& plan) {
  GiveUpSlots(sequence);
  sequence.preempted_in = plan.step;
  ++num_preemptions;
  plan.released.push_back(sequence.id);
  Enqueue(sequence, /*preempted=*/true);
}

void Scheduler::State::PlanPrefill(StepPlan& plan, int64_t budget_tokens) {
  // At most one, unless the step before came back without some samples.
  for (Sequence* sequence : prefilling) budget_tokens = PlanChunk(*sequence, plan, budget_tokens);
  if (budget_tokens == 0 || queue->size() == 0) return;
  std::vector<NodeLoad> loads;
  for (const auto& [id, pool] : pools) loads.push_back(LoadOf(pool));
  // A start needs a token of the budget that nobody who runs can use: so those who run are never more than the budget, and all get a row.
  while (budget_tokens > 0 && num_running < options.max_num_seqs) {
    Sequence* const started = StartNext(plan, loads);
    if (started == nullptr) return;
    budget_tokens = PlanChunk(*started, plan, budget_tokens);
  }
}

int64_t Scheduler::State::PlanChunk(Sequence& sequence, StepPlan& plan, int64_t budget_tokens) {
  const int64_t first = sequence.num_computed;
  const int64_t count = std::min(budget_tokens, sequence.num_tokens() - first);
  sequence.num_in_flight = count;
  sequence.samples = first + count == sequence.num_tokens();
  if (count == 0) return budget_tokens;
  Work work{sequence.id, sequence.pool->id, first, {}, {}, true, sequence.samples};
  work.tokens.assign(sequence.tokens.begin() + first, sequence.tokens.begin() + first + count);
  work.slots.assign(sequence.slots.begin() + first, sequence.slots.begin() + first + count);
  plan.work.push_back(std::move(work));
  return budget_tokens - count;
}

// Gives the queue's top its slots. nullptr if it has to wait, and everybody behind it too.
Sequence* Scheduler::State::StartNext(const StepPlan& plan, std::vector<NodeLoad>& loads) {
  const std::optional<Waiting> top = queue->Top();
  if (!top) return nullptr;
  const auto it = sequences.find(top->sequence);
  if (it == sequences.end()) return nullptr;
  Sequence& sequence = it->second;
  // Not in the plan that preempted it. Nobody overtakes it either: they would only take the slots that it made free.
  if (sequence.preempted_in == plan.step) return nullptr;
  const std::optional<NodeId> node = placement->Place(sequence.num_tokens() + sequence.growth(), loads);
  if (!node) return nullptr;
  const auto pool = pools.find(*node);
  if (pool == pools.end() || !pool->second.allocator.Allocate(sequence.num_tokens(), sequence.slots)) return nullptr;
  queue->Remove(sequence.id);
  sequence.pool = &pool->second;
  sequence.prefilling = true;
  pool->second.running.emplace(sequence.arrival, &sequence);
  prefilling.push_back(&sequence);
  ++num_running;
  for (NodeLoad& load : loads) {
    if (load.id != *node) continue;
    load.free_tokens = std::max<int64_t>(load.free_tokens - sequence.num_tokens() - sequence.growth(), 0);
    ++load.num_sequences;
  }
  return &sequence;
}

}  // namespace lamina
