// What a Scheduler remembers between calls, and the parts of NextStep. Private to scheduler.cc and
// next_step.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/kv_pool.h"
#include "scheduler/scheduler.h"

namespace lamina {

// Slots that a start leaves free for each sequence on the node, and so the steps that pass before
// the start can cause a preemption. A preemption costs the prefill of hundreds of tokens; 16 idle
// slots per sequence cost a few percent of a node that holds sequences of hundreds of tokens.
inline constexpr int64_t kGrowthTokens = 16;

// The rest of a prompt that shares a prefix is computed by decode rows, which compete with those of
// all other sequences. A prefix is used only if the rest takes at most this many full steps.
inline constexpr int64_t kMaxCatchUpSteps = 4;

// A sequence's tokens on one node.
struct Extent {
  KvPool* pool = nullptr;
  std::vector<TokenSlot> slots;

  int64_t num_tokens() const { return static_cast<int64_t>(slots.size()); }
};

// A sequence from Add to Finish. It waits, is parked, runs (has extents), or has ended (it has all
// its tokens, and only the call of Finish is missing).
struct Sequence {
  SequenceId id;
  uint64_t arrival = 0;         // counts calls of Add
  uint64_t group = 0;           // SequenceSpec::group
  int64_t told_bytes = 0;       // SequenceSpec::told_bytes
  std::vector<TokenId> tokens;  // prompt and generated
  int64_t num_prompt_tokens = 0;
  int64_t max_tokens = 0;  // prompt + max_new_tokens
  int priority = 0;        // SequenceSpec::priority
  TimePoint start;         // SequenceSpec::start
  Slo slo;                 // SequenceSpec::slo
  bool hopeless = false;   // Scheduler::PutLast
  // SequenceSpec::computes_prompt; false once it has a new token.
  bool computes_prompt = false;
  // How many of its first tokens it computed by prefill, or found in the cache, when it started the
  // first time; 0 before.
  int64_t num_prefilled = 0;

  // The following hold while it runs. Invariants: num_computed <= num_slots() <= tokens.size(). A
  // prefilling sequence has all its slots: those of the first extent are for its first tokens, and
  // so on. Tokens that are decoded later may go to any extent.
  std::vector<Extent> extents;  // each on another pool
  size_t newest = 0;            // index of the extent that got the last slot
  int64_t num_computed = 0;     // tokens whose KV is in its slots after the last completed step
  // How many of num_computed a completed step has attended to on the node. Their K and V have
  // certainly arrived there, so other sequences may share them.
  int64_t num_proven = 0;
  bool prefilling = false;  // until the step that samples its first token is completed
  // Tokens whose K and V were on the node when it started. If not 0, the rest is prefilled by
  // decode rows, because the compute node has no KV of the shared tokens.
  int64_t num_shared = 0;

  // While it waits: of its first tokens, as many have K and V outside (SchedulerOptions::
  // swap_tokens).
  int64_t num_swapped = 0;

  bool known = false;  // to the compute nodes, with all its tokens
  // To memory nodes it is new, and tokens before its first work are in its slots: another scheduler
  // left them.
  bool untold_left = false;

  int batch = 0;

  // Its part of the step that its batch has in flight.
  int64_t num_in_flight = 0;  // tokens
  bool samples = false;

  bool running() const { return !extents.empty(); }
  bool ended() const { return num_tokens() == max_tokens; }
  int64_t num_slots() const;
  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t start_bytes() const { return kStartBytesPerToken * num_tokens() + told_bytes; }
  // The tokens that may be found in the cache. The last one must be computed in any case, since its
  // logits choose the next token.
  std::span<const TokenId> all_but_last() const {
    return std::span(tokens).first(tokens.size() - 1);
  }
  int64_t num_generated() const { return num_tokens() - num_prompt_tokens; }
  // As policies see it.
  Waiting Seen(bool preempted = false) const {
    return {id,      num_tokens(), preempted,
            arrival, priority,     NextTokenDue(start, slo, num_generated()),
            hopeless};
  }
  // Slots that it will take in the next steps, beyond those for its present tokens. The last token
  // that is sampled never gets a slot.
  int64_t growth() const { return std::min(kGrowthTokens, max_tokens - num_tokens() - 1); }
};

// The slots of a sequence that gave them up while its step was in flight. They are freed when the
// step is completed.
struct Leaving {
  SequenceId id;
  std::vector<Extent> extents;
};

struct Batch {
  bool in_flight = false;  // a step with work is not completed
  std::vector<Leaving> leaving;
  int num_running = 0;   // sequences
  bool rotates = false;  // for StepPlan::rotates; follows the pipeline when nothing is prefilling
};

struct Scheduler::State {
  SchedulerOptions options;
  std::unique_ptr<QueuePolicy> queue;
  std::unique_ptr<PlacementPolicy> placement;

  std::map<NodeId, KvPool> pools;         // ordered, so that plans are a function of the calls
  std::map<uint64_t, Sequence*> running;  // by arrival
  std::map<uint64_t, Sequence*> parked;   // by arrival
  std::unordered_map<SequenceId, Sequence> sequences;
  std::vector<Sequence*> prefilling;  // running and not prefilled yet, in the order of their start
  std::vector<SequenceId> released;   // for the next plan
  std::map<KvHandle, Extent> left;    // by schedulers that are gone
  // For the next plan; and of all sequences, Sequence::num_swapped.
  std::vector<HeldTokens> swapped_out, swapped_in;
  int64_t num_swapped_tokens = 0;
  // When the first token is due, of sequences that may have none yet and become hopeless then.
  std::set<std::pair<TimePoint, SequenceId>> first_due;
  // SchedulerStats.
  int64_t num_preemptions = 0, num_started_tokens = 0, num_shared_tokens = 0, num_left_tokens = 0;
  uint64_t next_arrival = 0;
  StepId next_step{1};
  int64_t start_bytes = 0;  // of the sequences that the present plan tells compute nodes so far
  std::vector<Batch> batches;
  Pipeline pipeline;

  // The most tokens that one sequence can have, on all nodes or all but one; 0 without nodes.
  int64_t capacity_for_one(std::optional<NodeId> without = std::nullopt) const;
  // The same of the nodes that are not suspended.
  int64_t capacity_at_hand() const;
  bool any_suspended() const {
    return std::ranges::any_of(pools, [](const auto& pool) { return pool.second.suspended; });
  }
  // Whether it has tokens on a suspended node.
  static bool SitsOut(const Sequence& sequence) {
    return std::ranges::any_of(sequence.extents,
                               [](const Extent& extent) { return extent.pool->suspended; });
  }

  bool InFlight(const Sequence& sequence) const {
    return sequence.num_in_flight > 0 && batches[static_cast<size_t>(sequence.batch)].in_flight;
  }
  // Whether the sequence's step in flight is one of this batch, and still counts.
  bool IsInStep(const Sequence& sequence, int batch) const {
    return sequence.batch == batch && InFlight(sequence);
  }
  // Whether nodes may still hold what the sequence had before: a step in flight reads it, or its
  // release is yet to be told.
  bool IsLeaving(SequenceId sequence) const;
  // Whether another waiting sequence may start in this batch.
  bool MayStart(int batch) const;

  // The parts of NextStep, in its order.
  // Moves decoding sequences that the batch has too many of to other batches.
  void LevelBatch(int batch);
  void PlanDecode(StepPlan& plan);
  // The batch's decoding sequences, in the order in which they get slots.
  std::vector<Sequence*> ToDecode(int batch);
  // Whether the plan has room to tell the compute nodes of another sequence. The first one has room
  // in any case.
  bool MayTell(const Sequence& sequence) const {
    return start_bytes == 0 || start_bytes + sequence.start_bytes() <= options.max_start_bytes;
  }
  void PlanPrefill(StepPlan& plan, int64_t budget_tokens);
  // Gives a started sequence as much of the budget as it can use and returns what is left of it.
  int64_t PlanChunk(Sequence& sequence, StepPlan& plan, int64_t budget_tokens) const;
  // How many of its first tokens a started sequence computes by prefill.
  int64_t NumToPrefill(const Sequence& sequence) const;
  // Decode rows that the plan may still take.
  int64_t NumRowsLeft(const StepPlan& plan) const;
  // Gives slots to the sequence at the queue's top and makes it run. Returns false if it has to
  // wait, and everybody behind it too.
  bool Start(Sequence& sequence, const StepPlan& plan, std::vector<NodeLoad>& loads);
  // Whether the sequence is computing, from nothing, the prefix that its group will share.
  // REQUIRES: it runs.
  bool WillProve(const Sequence& sequence) const;
  // The groups of running sequences for which WillProve holds.
  std::set<uint64_t> AwaitedGroups() const;
  // Takes the slots that placement has chosen. All or nothing: returns false and takes nothing if
  // the shares are not what the sequence needs or do not fit.
  bool TakeSlots(Sequence& sequence, std::span<const KvShare> shares);
  // A prefix of a sequence whose K and V a pool keeps.
  struct Beginning {
    KvPool* pool = nullptr;
    int64_t length = 0;  // tokens
  };
  // The prefix that is most worth sharing; with pool == nullptr if none is.
  Beginning FindBeginning(const Sequence& sequence, std::span<const NodeLoad> loads);
  // Takes the slots of the prefix and slots for the rest. All or nothing: returns false and takes
  // nothing if there is no prefix or the rest has no room beside it.
  bool TakeShared(Sequence& sequence, const Beginning& beginning);
  // Offers the sequence's proven tokens to others that begin alike.
  void KeepProven(const Sequence& sequence);
  // Takes back what the sequence has offered, and what it shares itself. REQUIRES: it runs.
  void WithdrawKept(Sequence& sequence);
  enum class Growth { kGrown, kPreempted, kHasToWait };
  // Gives the sequence a slot for the token that was sampled last; may preempt others, or itself.
  Growth GrowByOne(Sequence& sequence);
  // The pool of the sequence's next token; nullptr if all pools that it may grow on are full.
  KvPool* PoolToGrow(const Sequence& sequence);
  // The sequence to preempt so that this one gets a slot: the last, by the queue's ranks and then
  // by age, of those that hold slots where it may grow, possibly itself. nullptr if slots will be
  // free, or the last one preemptable, when a step in flight is completed or a node is resumed.
  Sequence* VictimFor(Sequence& sequence) const;
  void Preempt(Sequence& sequence);
  // K and V that the sequence has outside come back into the slots that it has now.
  void BringBack(Sequence& sequence);
  // What is outside is lost: its sequences compute it again.
  void DropSwapped();

  // The sequence runs with what is left under this handle. Returns false, and nobody can go on with
  // that any more, if it is not what the sequence needs. REQUIRES: the sequence is new.
  bool GoOn(Sequence& sequence, int64_t num_prompt_tokens, const KvHandle& handle);
  // Frees what is left on this pool; null: on all.
  void DropLeft(const KvPool* pool = nullptr);

  void Enqueue(const Sequence& sequence, bool preempted);
  // Whether the first comes later than the other in the order in which slots are given.
  bool IsBehind(const Sequence& sequence, const Sequence& other) const;
  // The sequence waits, or is parked, with the tokens it has. REQUIRES: it neither runs nor waits.
  void Requeue(Sequence& sequence);
  // The sequence leaves its nodes and its batch. Its slots are freed now, or when its step in
  // flight is completed. REQUIRES: it runs.
  void GiveUpSlots(Sequence& sequence);
  static void Release(const std::vector<Extent>& extents);
  // Releases the slots and adds the sequence to `released`.
  void FreeSlots(SequenceId sequence, const std::vector<Extent>& extents);
  // Destroys the sequence, whatever its state.
  void Forget(Sequence& sequence);
};

}  // namespace lamina
