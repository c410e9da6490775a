// Scheduler::NextStep: decoding rows, then prefill chunks of started sequences, then new starts.
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler_state.h"

namespace lamina {

namespace {

NodeLoad LoadOf(const KvPool& pool) {
  return {pool.id(), pool.capacity(), pool.num_free(), static_cast<int>(pool.running.size()),
          pool.speed};
}

// What placement sees of a node when a sequence starts: slots that running sequences will soon grow
// into count as used. The growth of a sequence on several nodes is divided among them.
NodeLoad LoadWithGrowth(const KvPool& pool) {
  NodeLoad load = LoadOf(pool);
  for (const auto& [arrival, sequence] : pool.running) {
    const auto num_extents = static_cast<int64_t>(sequence->extents.size());
    load.free_tokens -= (sequence->growth() + num_extents - 1) / num_extents;
  }
  load.free_tokens = std::max<int64_t>(load.free_tokens, 0);
  return load;
}

// The route of a step that computes the sequence's last token. That token has its slot already, so
// it is not counted as stored before the step.
std::vector<KvPart> DecodeRoute(const Sequence& sequence) {
  std::vector<KvPart> route;
  for (size_t i = 0; i < sequence.extents.size(); ++i) {
    const Extent& extent = sequence.extents[i];
    KvPart part{extent.pool->id(), extent.num_tokens(), {}};
    if (i == sequence.newest) {
      part.slots.push_back(extent.slots.back());
      --part.num_stored;
    }
    route.push_back(std::move(part));
  }
  return route;
}

// The route of a prefill chunk: tokens [first, first + count) of the sequence.
std::vector<KvPart> PrefillRoute(const Sequence& sequence, int64_t first, int64_t count) {
  std::vector<KvPart> route;
  int64_t extent_first = 0;
  for (const Extent& extent : sequence.extents) {
    const int64_t begin = std::clamp<int64_t>(first - extent_first, 0, extent.num_tokens());
    const int64_t end = std::clamp<int64_t>(first + count - extent_first, 0, extent.num_tokens());
    extent_first += extent.num_tokens();
    if (begin < end)
      route.push_back(
          {extent.pool->id(), begin, {extent.slots.begin() + begin, extent.slots.begin() + end}});
  }
  return route;
}

}  // namespace

StepPlan Scheduler::NextStep(int batch) {
  Batch& planned = state_->batches[static_cast<size_t>(batch)];
  LAMINA_CHECK(!planned.in_flight, "Scheduler::NextStep: the step before is not completed");
  StepPlan plan;
  plan.step = state_->next_step;
  plan.batch = batch;
  state_->start_bytes = 0;
  state_->LevelBatch(batch);
  plan.rotates = planned.rotates;
  state_->PlanDecode(plan);
  state_->PlanPrefill(
      plan, state_->options.max_num_batched_tokens - static_cast<int64_t>(plan.work.size()));
  // PlanPrefill also adds decode work, of sequences that share a prefix.
  std::stable_partition(plan.work.begin(), plan.work.end(),
                        [](const Work& work) { return !work.prefill; });
  // Last, so that it includes the sequences that this plan has preempted.
  plan.released = std::exchange(state_->released, {});
  plan.swapped_out = std::exchange(state_->swapped_out, {});
  plan.swapped_in = std::exchange(state_->swapped_in, {});
  if (!plan.empty()) ++state_->next_step.value;
  planned.in_flight = !plan.work.empty();
  return plan;
}

// Only decoding sequences move: the KV of a partly prefilled prompt is on the compute nodes that
// the slices of its batch ran on. For the same reason the batch rotates, or stops rotating, only
// when none of its sequences is prefilling.
void Scheduler::State::LevelBatch(int batch) {
  Batch& here = batches[static_cast<size_t>(batch)];
  const bool active = batch < pipeline.num_batches;
  const auto least = [&] {
    return std::min_element(
        batches.begin(), batches.begin() + pipeline.num_batches,
        [](const Batch& a, const Batch& b) { return a.num_running < b.num_running; });
  };
  bool prefills = false;
  for (auto it = running.rbegin(); it != running.rend(); ++it) {
    Sequence& sequence = *it->second;
    if (sequence.batch != batch) continue;
    prefills |= sequence.prefilling;
    const auto to = least();
    // A difference of one is even. A batch that the pipeline no longer has gives away all.
    if (sequence.prefilling || (active && here.num_running <= to->num_running + 1)) continue;
    sequence.batch = static_cast<int>(to - batches.begin());
    // A row that came back without a sample still counts here, and must not look as if it were in
    // flight in the new batch.
    sequence.num_in_flight = 0;
    --here.num_running;
    ++to->num_running;
  }
  if (!prefills) here.rotates = pipeline.rotates;
}

std::vector<Sequence*> Scheduler::State::ToDecode(int batch) {
  std::vector<Sequence*> order;
  order.reserve(running.size());
  // Whether a sequence sits out is in all its extents, which are looked at only if one may.
  const bool some_sit_out = any_suspended();
  for (const auto& [arrival, sequence] : running) {
    if (sequence->batch != batch || sequence->prefilling) continue;
    // A row that came back without a sample still counts here.
    sequence->num_in_flight = 0;
    if (!some_sit_out || !SitsOut(*sequence)) order.push_back(sequence);
  }
  if (queue->ranks()) {
    std::ranges::stable_sort(order, {},
                             [this](const Sequence* s) { return queue->Rank(s->Seen()); });
  }
  return order;
}

// The victim of a preemption is last in the order, so it has no row in this plan yet.
void Scheduler::State::PlanDecode(StepPlan& plan) {
  plan.work.reserve(running.size() + 1);
  for (Sequence* const one : ToDecode(plan.batch)) {
    Sequence& sequence = *one;
    if (!sequence.running()) continue;  // preempted meanwhile
    if (!sequence.known && !MayTell(sequence)) continue;
    const bool again = sequence.num_slots() == sequence.num_tokens();
    if (GrowByOne(sequence) != Growth::kGrown) continue;
    plan.work.push_back({.sequence = sequence.id,
                         .route = DecodeRoute(sequence),
                         .first_position = sequence.num_computed,
                         .tokens = {sequence.tokens.back()},
                         .sample = true,
                         .first = !sequence.known,
                         .again = again});
    if (std::exchange(sequence.untold_left, false)) {
      KvPart& part = plan.work.back().route.front();
      const std::vector<TokenSlot>& slots = sequence.extents.front().slots;
      part.shared.assign(slots.begin(), slots.begin() + part.num_stored);
    }
    if (!std::exchange(sequence.known, true)) start_bytes += sequence.start_bytes();
    sequence.num_in_flight = 1;
    sequence.samples = true;
  }
}

Scheduler::State::Growth Scheduler::State::GrowByOne(Sequence& sequence) {
  // The last step came back without a sample for this sequence: its row is computed again, in the
  // slot that it has.
  if (sequence.num_slots() == sequence.num_tokens()) return Growth::kGrown;
  KvPool* pool = nullptr;
  while ((pool = PoolToGrow(sequence)) == nullptr) {
    if (!left.empty()) {  // for which nobody has asked, and may never
      DropLeft();
      continue;
    }
    Sequence* const victim = VictimFor(sequence);
    if (victim == nullptr) return Growth::kHasToWait;
    Preempt(*victim);
    if (victim == &sequence) return Growth::kPreempted;
  }
  auto extent = std::find_if(sequence.extents.begin(), sequence.extents.end(),
                             [&](const Extent& e) { return e.pool == pool; });
  if (extent == sequence.extents.end()) {
    extent = sequence.extents.insert(extent, Extent{pool, {}});
    pool->running.emplace(sequence.arrival, &sequence);
  }
  sequence.newest = static_cast<size_t>(extent - sequence.extents.begin());
  // This does not fail: PoolToGrow returns pools with a free slot only.
  return pool->Allocate(1, extent->slots) ? Growth::kGrown : Growth::kHasToWait;
}

KvPool* Scheduler::State::PoolToGrow(const Sequence& sequence) {
  if (!placement->spreads()) {
    KvPool* const pool = sequence.extents.front().pool;
    return pool->num_free() > 0 ? pool : nullptr;
  }
  std::vector<NodeLoad> loads;
  for (const auto& [id, pool] : pools) {
    if (pool.num_free() > 0 && !pool.suspended) loads.push_back(LoadOf(pool));
  }
  if (loads.empty()) return nullptr;
  std::vector<KvShare> held;
  for (const Extent& extent : sequence.extents)
    held.push_back({extent.pool->id(), extent.num_tokens()});
  const auto chosen = pools.find(placement->Grow(held, loads));
  if (chosen != pools.end() && chosen->second.num_free() > 0 && !chosen->second.suspended)
    return &chosen->second;
  // The policy has chosen a node without room. A free slot anywhere is used before anybody is
  // preempted.
  return &pools.at(loads.front().id);
}

Sequence* Scheduler::State::VictimFor(Sequence& sequence) const {
  const auto& candidates = placement->spreads() ? running : sequence.extents.front().pool->running;
  // Where sequences spread, those that sit out might be preempted for slots that nobody can use.
  if (placement->spreads() && any_suspended()) return nullptr;
  if (std::ranges::any_of(batches, [](const Batch& batch) { return !batch.leaving.empty(); }))
    return nullptr;
  Sequence* last = candidates.rbegin()->second;
  if (queue->ranks()) {
    for (const auto& [arrival, candidate] : candidates)
      if (IsBehind(*candidate, *last)) last = candidate;
  }
  // A sequence in flight cannot be preempted, since its slots are being read; but one before it
  // must not suffer in its place, so this one waits until that step is completed.
  return InFlight(*last) ? nullptr : last;
}

bool Scheduler::State::IsBehind(const Sequence& sequence, const Sequence& other) const {
  const int64_t rank = queue->Rank(sequence.Seen()), others = queue->Rank(other.Seen());
  return rank > others || (rank == others && sequence.arrival > other.arrival);
}

void Scheduler::State::Preempt(Sequence& sequence) {
  const bool may_swap = !sequence.prefilling && !placement->spreads() && !options.prefix_caching;
  const int64_t num_tokens = sequence.num_computed;
  GiveUpSlots(sequence);
  ++num_preemptions;
  if (may_swap && num_tokens > 0 && num_swapped_tokens + num_tokens <= options.swap_tokens) {
    sequence.num_swapped = num_tokens;
    num_swapped_tokens += num_tokens;
    swapped_out.push_back({sequence.id, num_tokens});
  }
  Enqueue(sequence, /*preempted=*/true);
}

void Scheduler::State::BringBack(Sequence& sequence) {
  swapped_in.push_back({sequence.id, sequence.num_swapped});
  num_swapped_tokens -= sequence.num_swapped;
  // As if it shared them: what is left comes as decode rows.
  sequence.num_computed = sequence.num_shared = std::exchange(sequence.num_swapped, 0);
}

bool Scheduler::State::IsLeaving(SequenceId sequence) const {
  const auto leaves = [&](const Batch& batch) {
    return std::ranges::find(batch.leaving, sequence, &Leaving::id) != batch.leaving.end();
  };
  return std::ranges::find(released, sequence) != released.end() ||
         std::ranges::any_of(batches, leaves);
}

void Scheduler::State::PlanPrefill(StepPlan& plan, int64_t budget_tokens) {
  // At most one sequence of the batch is partly prefilled, unless the last step came back without
  // some samples.
  for (Sequence* sequence : prefilling) {
    if (sequence->batch == plan.batch) budget_tokens = PlanChunk(*sequence, plan, budget_tokens);
  }
  if (budget_tokens == 0 || queue->size() == 0 || !MayStart(plan.batch)) return;
  std::vector<NodeLoad> loads;
  for (const auto& [id, pool] : pools) {
    if (!pool.suspended) loads.push_back(LoadWithGrowth(pool));
  }
  if (loads.empty()) return;
  const int64_t capacity = capacity_at_hand();
  std::set<uint64_t> awaited = AwaitedGroups();
  std::vector<Waiting> passed_over;
  // A sequence starts only with a token of the budget that no running sequence can use. So the
  // running sequences never outnumber the budget, and each of them gets a row in every step.
  while (budget_tokens > 0 && MayStart(plan.batch)) {
    const std::optional<Waiting> top = queue->Top();
    const auto it = top ? sequences.find(top->sequence) : sequences.end();
    // A sequence does not start again in the plan that releases it, nor while a step in flight
    // reads what it had: nodes would take the one start for the other. Nobody overtakes it either:
    // they would only take the slots that it has just freed.
    if (it == sequences.end() || IsLeaving(top->sequence)) break;
    Sequence& sequence = it->second;
    // The prefix that it will share is being computed. It holds no slots meanwhile and will need
    // few, so those behind it need not wait too. A prompt of one token has nothing to share. Nor
    // need anybody wait with it for a suspended node.
    if ((awaited.contains(sequence.group) && sequence.num_tokens() > 1) ||
        sequence.max_tokens > capacity) {
      queue->Remove(sequence.id);
      passed_over.push_back(*top);
      continue;
    }
    if (!Start(sequence, plan, loads)) break;
    if (WillProve(sequence)) awaited.insert(sequence.group);
    budget_tokens = PlanChunk(sequence, plan, budget_tokens);
  }
  for (const Waiting& waiting : passed_over) queue->Push(waiting);
}

bool Scheduler::State::MayStart(int batch) const {
  const auto num_running = static_cast<int>(running.size());
  if (num_running >= options.max_num_seqs || batch >= pipeline.num_batches) return false;
  // A batch starts no more than its share of all sequences that run or could start now. So a burst
  // of requests is divided among the next steps of all batches, and the batches end up even.
  const int num_to_run =
      num_running + std::min(static_cast<int>(queue->size()), options.max_num_seqs - num_running);
  const int share = (num_to_run + pipeline.num_batches - 1) / pipeline.num_batches;
  return batches[static_cast<size_t>(batch)].num_running < share;
}

int64_t Scheduler::State::NumToPrefill(const Sequence& sequence) const {
  // The compute node has no K and V of tokens that were in the cache. What comes behind them is
  // decode rows, which attend to them on the memory node.
  if (sequence.num_shared > 0) return 0;
  if (options.replays_as_computed && sequence.extents.size() == 1) return sequence.num_prefilled;
  return sequence.num_tokens();
}

// Memory nodes take at most max_num_seqs decode rows in one step.
int64_t Scheduler::State::NumRowsLeft(const StepPlan& plan) const {
  int64_t left = options.max_num_seqs;
  for (const Work& work : plan.work) left -= work.prefill ? 0 : std::ssize(work.tokens);
  return left;
}

int64_t Scheduler::State::PlanChunk(Sequence& sequence, StepPlan& plan,
                                    int64_t budget_tokens) const {
  const int64_t first = sequence.num_computed, to_prefill = NumToPrefill(sequence);
  const bool prefills = first < to_prefill;
  const int64_t end = prefills ? to_prefill : sequence.num_tokens();
  const int64_t count =
      std::min({budget_tokens, end - first, prefills ? budget_tokens : NumRowsLeft(plan)});
  sequence.num_in_flight = count;
  sequence.samples = first + count == sequence.num_tokens();
  if (count == 0) return budget_tokens;
  Work work{.sequence = sequence.id,
            .route = PrefillRoute(sequence, first, count),
            .first_position = first,
            .tokens = {sequence.tokens.begin() + first, sequence.tokens.begin() + first + count},
            .prefill = prefills,
            .sample = sequence.samples,
            .ends_prefill = prefills && first + count == to_prefill,
            .first = first == sequence.num_shared};
  if (work.first && sequence.num_shared > 0) {
    const std::vector<TokenSlot>& slots = sequence.extents.front().slots;
    work.route.front().shared.assign(slots.begin(), slots.begin() + first);
  }
  plan.work.push_back(std::move(work));
  return budget_tokens - count;
}

bool Scheduler::State::Start(Sequence& sequence, const StepPlan& plan,
                             std::vector<NodeLoad>& loads) {
  if (!MayTell(sequence)) return false;
  const bool comes_back = sequence.num_swapped > 0;
  const Beginning beginning = comes_back ? Beginning{} : FindBeginning(sequence, loads);
  // It could not get a row of this step, so it would only hold slots.
  if ((comes_back || beginning.pool != nullptr) && NumRowsLeft(plan) == 0) return false;
  if (!TakeShared(sequence, beginning) &&
      !TakeSlots(sequence, placement->Place(sequence.num_tokens(), sequence.growth(), loads)))
    return false;
  start_bytes += sequence.start_bytes();
  num_started_tokens += sequence.num_tokens();
  num_shared_tokens += sequence.num_shared;
  if (comes_back) BringBack(sequence);
  queue->Remove(sequence.id);
  if (sequence.num_prefilled == 0)
    sequence.num_prefilled = sequence.num_shared > 0 ? sequence.num_shared : sequence.num_tokens();
  sequence.prefilling = true;
  sequence.known = true;
  sequence.batch = plan.batch;
  ++batches[static_cast<size_t>(plan.batch)].num_running;
  running.emplace(sequence.arrival, &sequence);
  prefilling.push_back(&sequence);
  for (const Extent& extent : sequence.extents) {
    extent.pool->running.emplace(sequence.arrival, &sequence);
    for (NodeLoad& load : loads) {
      if (load.id == extent.pool->id()) load = LoadWithGrowth(*extent.pool);
    }
  }
  return true;
}

// A sequence proves the prefix of its group with its first decode step, so it must have one token
// to generate after the one that its prefill samples. If it shares a prefix itself, that prefix is
// there for the others too, and nobody need wait for it.
bool Scheduler::State::WillProve(const Sequence& sequence) const {
  return options.prefix_caching && sequence.group != 0 && sequence.num_shared == 0 &&
         sequence.num_proven == 0 && sequence.extents.size() == 1 &&
         sequence.num_tokens() + 1 < sequence.max_tokens;
}

std::set<uint64_t> Scheduler::State::AwaitedGroups() const {
  std::set<uint64_t> groups;
  for (const auto& [arrival, sequence] : running) {
    if (WillProve(*sequence) && !SitsOut(*sequence)) groups.insert(sequence->group);
  }
  return groups;
}

Scheduler::State::Beginning Scheduler::State::FindBeginning(const Sequence& sequence,
                                                            std::span<const NodeLoad> loads) {
  if (!options.prefix_caching || sequence.computes_prompt) return {};
  // A sequence that placement would spread does not share.
  if (placement->spreads() &&
      placement->Place(sequence.num_tokens(), sequence.growth(), loads).size() != 1)
    return {};
  // Tokens that the node's attention reads in each decode step.
  const auto read = [](const KvPool& pool) {
    int64_t sum = 0;
    for (const auto& [arrival, other] : pool.running) sum += other->num_slots();
    return sum;
  };
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [id, pool] : pools) {
    if (!pool.suspended) least = std::min(least, read(pool));
  }
  Beginning best;
  int64_t most = 0;
  for (auto& [id, pool] : pools) {
    if (pool.suspended) continue;
    const int64_t length = pool.CachedLength(sequence.all_but_last());
    // The tokens that need not be computed again must outweigh the tokens that this node reads in
    // each step beyond the least loaded one. A group shares in any case.
    const int64_t worth = length - (sequence.group == 0 ? read(pool) - least : 0);
    const bool enough = sequence.group != 0 || 2 * length > sequence.num_tokens();
    if (!enough || sequence.num_tokens() - length > kMaxCatchUpSteps * options.max_num_seqs ||
        worth <= most)
      continue;
    most = worth;
    best = {&pool, length};
  }
  return best;
}

bool Scheduler::State::TakeShared(Sequence& sequence, const Beginning& beginning) {
  if (beginning.pool == nullptr) return false;
  KvPool& pool = *beginning.pool;
  // Shared before the load is taken: idle slots count as free until a sequence owns them.
  std::vector<TokenSlot> slots = pool.Share(sequence.all_but_last());
  const NodeLoad load = LoadWithGrowth(pool);
  const int64_t num_left = sequence.num_tokens() - beginning.length;
  const std::vector<KvShare> shares = placement->Place(num_left, sequence.growth(), {&load, 1});
  if (shares.size() != 1 || !pool.Allocate(num_left, slots)) {
    pool.Release(slots);
    return false;
  }
  sequence.extents = {{&pool, std::move(slots)}};
  sequence.newest = 0;
  sequence.num_computed = sequence.num_shared = beginning.length;
  return true;
}

bool Scheduler::State::TakeSlots(Sequence& sequence, std::span<const KvShare> shares) {
  std::vector<Extent> extents;
  int64_t num_tokens = 0;
  // The policy may be a deployment's own, so what it returns is checked.
  bool fits = !shares.empty() && (shares.size() == 1 || placement->spreads());
  for (const KvShare& share : shares) {
    const auto pool = pools.find(share.node);
    const auto is_same = [&](const Extent& extent) { return extent.pool->id() == share.node; };
    fits = fits && pool != pools.end() && !pool->second.suspended && share.num_tokens > 0 &&
           std::none_of(extents.begin(), extents.end(), is_same);
    if (!fits) break;
    extents.push_back({&pool->second, {}});
    fits = pool->second.Allocate(share.num_tokens, extents.back().slots);
    num_tokens += share.num_tokens;
  }
  if (fits && num_tokens == sequence.num_tokens()) {
    sequence.extents = std::move(extents);
    sequence.newest = sequence.extents.size() - 1;
    return true;
  }
  for (const Extent& extent : extents) extent.pool->Release(extent.slots);
  return false;
}

}  // namespace lamina
