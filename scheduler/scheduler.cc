#include "scheduler/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler_state.h"

namespace lamina {

Scheduler::Scheduler(const SchedulerOptions& options, std::unique_ptr<QueuePolicy> queue,
                     std::unique_ptr<PlacementPolicy> placement)
    : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->queue = std::move(queue);
  state_->placement = std::move(placement);
  state_->batches.resize(static_cast<size_t>(options.num_batches));
  state_->pipeline.num_batches = options.num_batches;
}

Scheduler::~Scheduler() = default;

void Scheduler::AddNode(const KvNode& node) {
  LAMINA_CHECK(!state_->pools.contains(node.id), "Scheduler::AddNode: node {} is there already",
               node.id.value);
  state_->pools.try_emplace(node.id, node);
  for (const auto& [arrival, sequence] : std::exchange(state_->parked, {}))
    state_->Requeue(*sequence);
}

void Scheduler::AddLeft(const KvHandle& handle, NodeId node, std::vector<TokenSlot> slots) {
  const auto found = state_->pools.find(node);
  if (found == state_->pools.end() || slots.empty() || state_->left.contains(handle)) return;
  KvPool& pool = found->second;
  const auto is_there = [&](TokenSlot slot) { return slot < pool.capacity(); };
  if (!std::ranges::all_of(slots, is_there)) return;
  pool.Occupy(slots);
  state_->left.emplace(handle, Extent{&pool, std::move(slots)});
}

void Scheduler::DropLeft() { state_->DropLeft(); }

bool Scheduler::has_left() const { return !state_->left.empty(); }

void Scheduler::SetCapacity(NodeId node, int64_t tokens) {
  const auto found = state_->pools.find(node);
  if (found == state_->pools.end()) return;
  KvPool& pool = found->second;
  if (tokens == pool.capacity()) return;
  std::vector<Sequence*> above;  // a copy: GiveUpSlots changes the pool's list
  for (const auto& [arrival, sequence] : pool.running) {
    const auto is_above = [&](const Extent& extent) {
      return extent.pool == &pool &&
             std::ranges::any_of(extent.slots, [&](TokenSlot slot) { return slot >= tokens; });
    };
    if (std::ranges::any_of(sequence->extents, is_above)) above.push_back(sequence);
  }
  if (tokens < pool.capacity()) state_->DropLeft(&pool);
  for (Sequence* sequence : above) {
    state_->WithdrawKept(*sequence);
    state_->Preempt(*sequence);
  }
  pool.SetCapacity(tokens);
}

bool Scheduler::Has(const KvNode& node) const {
  const auto found = state_->pools.find(node.id);
  return found != state_->pools.end() && found->second.least() == node.capacity_tokens &&
         found->second.most() == std::max(node.capacity_tokens, node.most_tokens);
}

bool Scheduler::IsOverCapacity(NodeId node) const {
  const auto found = state_->pools.find(node);
  return found != state_->pools.end() && found->second.is_over_capacity();
}

void Scheduler::SetSpeed(NodeId node, double speed) {
  const auto found = state_->pools.find(node);
  if (found != state_->pools.end()) found->second.speed = speed;
}

void Scheduler::SetPipeline(const Pipeline& pipeline) { state_->pipeline = pipeline; }

LostSequences Scheduler::LoseNode(NodeId node) {
  const auto lost = state_->pools.find(node);
  if (lost == state_->pools.end()) return {};
  state_->DropSwapped();
  const int64_t capacity_left = state_->capacity_for_one(node);
  const auto on_it = [&](const Extent& extent) { return extent.pool == &lost->second; };
  std::vector<Sequence*> concerned;
  for (auto& [id, sequence] : state_->sequences) {
    // One that has all its tokens needs no node any more and only waits for Finish.
    if (sequence.ended() || state_->parked.contains(sequence.arrival)) continue;
    if (std::ranges::any_of(sequence.extents, on_it) || sequence.max_tokens > capacity_left)
      concerned.push_back(&sequence);
  }
  std::ranges::sort(concerned, {}, &Sequence::arrival);
  LostSequences result;
  for (Sequence* sequence : concerned) {
    if (sequence->running()) {
      state_->GiveUpSlots(*sequence);
    } else {
      state_->queue->Remove(sequence->id);
    }
    (sequence->max_tokens > capacity_left ? result.parked : result.again).push_back(sequence->id);
  }
  // The pool is destroyed, so no extent may point to it when steps in flight are completed.
  state_->DropLeft(&lost->second);
  for (Batch& batch : state_->batches) {
    for (Leaving& leaving : batch.leaving) std::erase_if(leaving.extents, on_it);
  }
  state_->pools.erase(lost);
  for (Sequence* sequence : concerned) state_->Requeue(*sequence);
  return result;
}

std::vector<SequenceId> Scheduler::Suspend(NodeId node) {
  const auto late = state_->pools.find(node);
  if (late == state_->pools.end() || late->second.suspended) return {};
  late->second.suspended = true;
  std::vector<Sequence*> unfinished;  // a copy: GiveUpSlots changes the pool's list
  for (const auto& [arrival, sequence] : late->second.running) {
    if (sequence->prefilling) unfinished.push_back(sequence);
  }
  std::vector<SequenceId> again;
  for (Sequence* sequence : unfinished) {
    again.push_back(sequence->id);
    state_->GiveUpSlots(*sequence);
    state_->Requeue(*sequence);
  }
  return again;
}

void Scheduler::Resume(NodeId node) {
  const auto found = state_->pools.find(node);
  if (found != state_->pools.end()) found->second.suspended = false;
}

void Scheduler::Again(SequenceId sequence) {
  const auto it = state_->sequences.find(sequence);
  if (it == state_->sequences.end() || !it->second.running()) return;
  state_->WithdrawKept(it->second);
  state_->GiveUpSlots(it->second);
  state_->Requeue(it->second);
}

std::vector<SequenceId> Scheduler::TakeHopeless(TimePoint now) {
  std::vector<SequenceId> hopeless;
  auto& first_due = state_->first_due;
  while (!first_due.empty() && first_due.begin()->first <= now) {
    const Sequence& sequence = state_->sequences.at(first_due.begin()->second);
    if (!sequence.running() && sequence.num_generated() == 0) hopeless.push_back(sequence.id);
    first_due.erase(first_due.begin());
  }
  return hopeless;
}

TimePoint Scheduler::next_hopeless() const {
  return state_->first_due.empty() ? TimePoint::max() : state_->first_due.begin()->first;
}

void Scheduler::PutLast(SequenceId sequence) {
  const auto it = state_->sequences.find(sequence);
  if (it == state_->sequences.end() || it->second.running() || it->second.ended()) return;
  it->second.hopeless = true;
  if (IsParked(sequence)) return;
  state_->queue->Remove(sequence);
  state_->Enqueue(it->second, /*preempted=*/false);
}

bool Scheduler::IsParked(SequenceId sequence) const {
  const auto it = state_->sequences.find(sequence);
  return it != state_->sequences.end() && state_->parked.contains(it->second.arrival);
}

void Scheduler::AbandonSteps() {
  state_->DropSwapped();
  for (Batch& batch : state_->batches) {
    batch.in_flight = false;
    for (const Leaving& leaving : std::exchange(batch.leaving, {}))
      state_->FreeSlots(leaving.id, leaving.extents);
  }
  for (Sequence* sequence : std::vector(state_->prefilling)) {
    state_->GiveUpSlots(*sequence);
    state_->Requeue(*sequence);
  }
  for (const auto& [arrival, sequence] : state_->running) {
    sequence->num_in_flight = 0;
    sequence->known = false;
  }
  for (auto& [id, pool] : state_->pools) pool.suspended = false;
  // Nodes that keep what Held says need not be told what to drop.
  state_->released.clear();
}

std::map<NodeId, std::vector<HeldTokens>> Scheduler::Held() const {
  std::map<NodeId, std::vector<HeldTokens>> held;
  for (const auto& [arrival, sequence] : state_->running) {
    if (sequence->untold_left) continue;  // K and V are in slots, and no node knows whose
    const bool uncomputed = sequence->num_slots() > sequence->num_computed;
    for (size_t i = 0; i < sequence->extents.size(); ++i) {
      const Extent& extent = sequence->extents[i];
      const int64_t num_tokens =
          extent.num_tokens() - (uncomputed && i == sequence->newest ? 1 : 0);
      if (num_tokens > 0) held[extent.pool->id()].push_back({sequence->id, num_tokens});
    }
  }
  return held;
}

void Scheduler::DropKv(NodeId node) {
  const auto found = state_->pools.find(node);
  if (found == state_->pools.end()) return;
  state_->DropSwapped();
  std::vector<Sequence*> concerned;  // a copy: GiveUpSlots changes the pool's list
  for (const auto& [arrival, sequence] : found->second.running) concerned.push_back(sequence);
  for (Sequence* sequence : concerned) {
    state_->GiveUpSlots(*sequence);
    state_->Requeue(*sequence);
  }
  state_->DropLeft(&found->second);
  found->second.DropPrefixes();
}

Status Scheduler::Add(SequenceSpec spec) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const int64_t prompt_tokens = static_cast<int64_t>(spec.prompt.size());
  const int64_t max_model_len = state_->options.max_model_len;
  if (prompt_tokens == 0)
    return InvalidArgument("the prompt is empty; at least one token is needed");
  if (spec.max_new_tokens < 1)
    return InvalidArgument("max_new_tokens is " + number(spec.max_new_tokens) +
                           "; at least 1 is needed");
  if (spec.max_new_tokens > max_model_len - prompt_tokens) {
    return InvalidArgument(
        number(prompt_tokens) + " prompt tokens and " + number(spec.max_new_tokens) +
        " new ones are more than the model's length of " + number(max_model_len) + " tokens");
  }
  if (std::ssize(spec.generated) >= spec.max_new_tokens) {
    return InvalidArgument(number(std::ssize(spec.generated)) + " of " +
                           number(spec.max_new_tokens) +
                           " new tokens are generated already, so none is left to generate");
  }
  if (spec.num_cached < 0 || spec.num_cached >= prompt_tokens) {
    return InvalidArgument(number(spec.num_cached) + " of " + number(prompt_tokens) +
                           " prompt tokens cannot have been in the cache");
  }
  if (state_->sequences.contains(spec.id))
    return InvalidArgument("sequence " + std::to_string(spec.id.value) + " was added already");
  const int64_t max_tokens = prompt_tokens + spec.max_new_tokens;
  if (!state_->pools.empty() && max_tokens > state_->capacity_for_one()) {
    return InvalidArgument(number(prompt_tokens) + " prompt tokens and " +
                           number(spec.max_new_tokens) + " new ones are more than the " +
                           (state_->placement->spreads() ? "nodes' KV capacity, together "
                                                         : "largest node's KV capacity of ") +
                           number(state_->capacity_for_one()) + " tokens");
  }
  const bool has_left = !spec.generated.empty() && state_->left.contains(spec.left);
  // Those that go on were accepted once.
  if (spec.generated.empty() &&
      std::ssize(state_->parked) + static_cast<int64_t>(state_->queue->size()) >=
          state_->options.max_queued) {
    return TryAgain("the queue is full: " + number(state_->options.max_queued) +
                    " sequences wait already");
  }
  Sequence& sequence = state_->sequences[spec.id];
  sequence.id = spec.id;
  sequence.arrival = state_->next_arrival++;
  sequence.group = spec.group;
  sequence.told_bytes = spec.told_bytes;
  sequence.tokens = std::move(spec.prompt);
  if (!spec.generated.empty()) {
    sequence.tokens.insert(sequence.tokens.end(), spec.generated.begin(), spec.generated.end());
    sequence.num_prefilled = spec.num_cached > 0 ? spec.num_cached : prompt_tokens;
  }
  sequence.num_prompt_tokens = prompt_tokens;
  sequence.max_tokens = max_tokens;
  sequence.priority = spec.priority;
  sequence.start = spec.start;
  sequence.slo = spec.slo;
  sequence.computes_prompt = spec.computes_prompt && spec.generated.empty();
  if (sequence.num_generated() == 0 && spec.slo.ttft > Clock::duration::zero())
    state_->first_due.emplace(NextTokenDue(spec.start, spec.slo, 0), spec.id);
  if (has_left && state_->GoOn(sequence, prompt_tokens, spec.left)) return OkStatus();
  if (state_->pools.empty()) {
    state_->parked.emplace(sequence.arrival, &sequence);
  } else {
    state_->Enqueue(sequence, /*preempted=*/false);
  }
  return OkStatus();
}

void Scheduler::Finish(SequenceId sequence) {
  const auto it = state_->sequences.find(sequence);
  if (it != state_->sequences.end()) state_->Forget(it->second);
}

void Scheduler::Fail(SequenceId sequence) {
  const auto it = state_->sequences.find(sequence);
  if (it == state_->sequences.end()) return;
  if (it->second.running()) state_->WithdrawKept(it->second);
  state_->Forget(it->second);
}

bool Scheduler::IsInStep(SequenceId sequence, int batch) const {
  const auto it = state_->sequences.find(sequence);
  return it != state_->sequences.end() && state_->IsInStep(it->second, batch);
}

std::vector<size_t> Scheduler::CompleteStep(std::span<const Sampled> sampled, int batch) {
  std::vector<size_t> taken;
  Batch& completed = state_->batches[static_cast<size_t>(batch)];
  if (!completed.in_flight) return taken;
  for (const Leaving& leaving : std::exchange(completed.leaving, {}))
    state_->FreeSlots(leaving.id, leaving.extents);
  taken.reserve(sampled.size());
  for (size_t i = 0; i < sampled.size(); ++i) {
    const auto it = state_->sequences.find(sampled[i].sequence);
    // Not in this step: it was finished since, or has lost its slots, and may have started anew.
    if (it == state_->sequences.end() || !state_->IsInStep(it->second, batch) ||
        !it->second.samples)
      continue;
    taken.push_back(i);
    Sequence& sequence = it->second;
    sequence.num_computed += std::exchange(sequence.num_in_flight, 0);
    // Decode rows attend on the memory node to everything before them, so their output shows that
    // it is there. Prefill attends on the compute node and shows nothing. What is proven first is
    // offered at once, because others of the group wait for it; what follows is offered in
    // GiveUpSlots.
    const bool proves = !sequence.prefilling || sequence.num_shared > 0;
    if (proves && std::exchange(sequence.num_proven, sequence.num_computed) == 0)
      state_->KeepProven(sequence);
    sequence.prefilling = false;
    sequence.computes_prompt = false;
    sequence.tokens.push_back(sampled[i].token);
    if (sequence.ended()) state_->GiveUpSlots(sequence);
  }
  completed.in_flight = false;
  // Chunks that do not end their prefill have no entry in `sampled`.
  for (Sequence* sequence : state_->prefilling) {
    if (sequence->batch == batch && !sequence->samples)
      sequence->num_computed += std::exchange(sequence->num_in_flight, 0);
  }
  std::erase_if(state_->prefilling, [](const Sequence* sequence) { return !sequence->prefilling; });
  return taken;
}

std::span<const TokenId> Scheduler::Tokens(SequenceId sequence) const {
  const auto it = state_->sequences.find(sequence);
  if (it == state_->sequences.end()) return {};
  return it->second.tokens;
}

Scheduler::Promise Scheduler::PromiseOf(SequenceId sequence) const {
  const auto it = state_->sequences.find(sequence);
  if (it == state_->sequences.end()) return {};
  const Sequence& found = it->second;
  return {found.slo, found.start, found.num_tokens(), found.num_tokens() - found.num_prompt_tokens};
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats;
  stats.num_running = static_cast<int>(state_->running.size());
  stats.num_waiting = static_cast<int>(state_->queue->size());
  stats.num_parked = static_cast<int>(state_->parked.size());
  // Asked for at every step, and nodes are rarely suspended.
  if (state_->any_suspended()) {
    for (const auto& [arrival, sequence] : state_->running)
      stats.num_suspended += State::SitsOut(*sequence) ? 1 : 0;
  }
  stats.num_preemptions = state_->num_preemptions;
  stats.num_started_tokens = state_->num_started_tokens;
  stats.num_shared_tokens = state_->num_shared_tokens;
  stats.num_left_tokens = state_->num_left_tokens;
  stats.nodes.reserve(state_->pools.size());
  for (const auto& [id, pool] : state_->pools) {
    stats.nodes.push_back({id, pool.capacity(), pool.capacity() - pool.num_free(), pool.num_idle(),
                           static_cast<int>(pool.running.size())});
  }
  return stats;
}

int64_t Sequence::num_slots() const {
  int64_t sum = 0;
  for (const Extent& extent : extents) sum += extent.num_tokens();
  return sum;
}

int64_t Scheduler::State::capacity_for_one(std::optional<NodeId> without) const {
  int64_t capacity = 0;
  for (const auto& [id, pool] : pools) {
    if (id == without) continue;
    capacity = placement->spreads() ? capacity + pool.least() : std::max(capacity, pool.least());
  }
  return capacity;
}

int64_t Scheduler::State::capacity_at_hand() const {
  int64_t capacity = 0;
  for (const auto& [id, pool] : pools) {
    if (pool.suspended) continue;
    capacity = placement->spreads() ? capacity + pool.least() : std::max(capacity, pool.least());
  }
  return capacity;
}

// As a sequence whose steps were abandoned: compute nodes know nothing of it, and its last token is
// computed next. One whose prompt was not complete, or which lacks tokens, starts again.
bool Scheduler::State::GoOn(Sequence& sequence, int64_t num_prompt_tokens, const KvHandle& handle) {
  Extent extent = std::move(left.extract(handle).mapped());
  const int64_t num_computed = sequence.num_tokens() - 1;
  const int64_t num_kept =
      num_computed >= num_prompt_tokens && extent.num_tokens() >= num_computed &&
              std::ssize(running) < options.max_num_seqs && !extent.pool->suspended
          ? num_computed
          : 0;
  extent.pool->Release(std::span(extent.slots).subspan(static_cast<size_t>(num_kept)));
  if (num_kept == 0) return false;
  extent.slots.resize(static_cast<size_t>(num_kept));
  extent.pool->running.emplace(sequence.arrival, &sequence);
  sequence.extents.push_back(std::move(extent));
  sequence.newest = 0;
  sequence.num_computed = num_kept;
  sequence.untold_left = true;
  num_left_tokens += num_kept;
  running.emplace(sequence.arrival, &sequence);
  const auto least = std::min_element(
      batches.begin(), batches.begin() + pipeline.num_batches,
      [](const Batch& a, const Batch& b) { return a.num_running < b.num_running; });
  sequence.batch = static_cast<int>(least - batches.begin());
  ++least->num_running;
  return true;
}

void Scheduler::State::DropLeft(const KvPool* pool) {
  std::erase_if(left, [&](const auto& one) {
    const Extent& extent = one.second;
    if (pool != nullptr && extent.pool != pool) return false;
    extent.pool->Release(extent.slots);
    return true;
  });
}

void Scheduler::State::Requeue(Sequence& sequence) {
  if (sequence.max_tokens > capacity_for_one()) {
    parked.emplace(sequence.arrival, &sequence);
  } else {
    Enqueue(sequence, /*preempted=*/true);
  }
}

void Scheduler::State::DropSwapped() {
  for (auto& [id, sequence] : sequences) sequence.num_swapped = 0;
  num_swapped_tokens = 0;
  swapped_out.clear();
}

void Scheduler::State::Enqueue(const Sequence& sequence, bool preempted) {
  queue->Push(sequence.Seen(preempted));
}

void Scheduler::State::FreeSlots(SequenceId sequence, const std::vector<Extent>& extents) {
  Release(extents);
  released.push_back(sequence);
}

void Scheduler::State::Release(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) extent.pool->Release(extent.slots);
}

void Scheduler::State::KeepProven(const Sequence& sequence) {
  // A prefix is shared only if all of it is on one node.
  if (!options.prefix_caching || sequence.extents.size() != 1 || sequence.num_proven == 0) return;
  const Extent& extent = sequence.extents.front();
  const auto num_tokens = static_cast<size_t>(sequence.num_proven);
  extent.pool->Keep(std::span(sequence.tokens).first(num_tokens),
                    std::span(extent.slots).first(num_tokens));
}

// What the sequence has offered, it offered while it had only one extent. That extent is still the
// first one, and its slots are those of the sequence's first tokens.
void Scheduler::State::WithdrawKept(Sequence& sequence) {
  sequence.num_proven = 0;
  const Extent& first = sequence.extents.front();
  first.pool->Withdraw(std::span(sequence.tokens).first(first.slots.size()), first.slots);
}

void Scheduler::State::GiveUpSlots(Sequence& sequence) {
  KeepProven(sequence);
  for (const Extent& extent : sequence.extents) extent.pool->running.erase(sequence.arrival);
  running.erase(sequence.arrival);
  if (sequence.prefilling) std::erase(prefilling, &sequence);
  Batch& batch = batches[static_cast<size_t>(sequence.batch)];
  --batch.num_running;
  // With a single batch no slot is given to another sequence before the step in flight is
  // completed, because no other step is planned before. With several, the next plan of another
  // batch could overwrite what this step still reads.
  if (sequence.untold_left) {
    Release(sequence.extents);
  } else if (InFlight(sequence) && batches.size() > 1) {
    batch.leaving.push_back({sequence.id, std::move(sequence.extents)});
  } else {
    FreeSlots(sequence.id, sequence.extents);
  }
  sequence.extents.clear();
  sequence.num_computed = 0;
  sequence.num_proven = 0;
  sequence.num_shared = 0;
  sequence.prefilling = false;
  sequence.known = false;
  sequence.untold_left = false;
  sequence.num_in_flight = 0;
}

void Scheduler::State::Forget(Sequence& sequence) {
  if (sequence.running()) {
    GiveUpSlots(sequence);
  } else {
    queue->Remove(sequence.id);  // ignored if it has ended or is parked and not in the queue
    parked.erase(sequence.arrival);
  }
  num_swapped_tokens -= sequence.num_swapped;
  first_due.erase({NextTokenDue(sequence.start, sequence.slo, 0), sequence.id});
  sequences.erase(sequence.id);
}

}  // namespace lamina
