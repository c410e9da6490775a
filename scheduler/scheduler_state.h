// What a Scheduler remembers between calls. Private to scheduler.cc and next_step.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "scheduler/kv_pool.h"
#include "scheduler/scheduler.h"

namespace lamina {

// Slots that a start leaves free for each sequence on the node: so many steps pass before it can
// cause a preemption. A preemption costs the prefill of hundreds of tokens, 16 idle slots cost a
// few percent of a node that holds sequences of hundreds of tokens.
inline constexpr int64_t kGrowthTokens = 16;

// What is left of a prompt whose beginning is shared comes as decode rows, which take turns with
// everybody's: at most so many steps' worth.
inline constexpr int64_t kMaxCatchUpSteps = 4;

// A sequence's tokens on one node.
struct Extent {
  KvPool* pool = nullptr;
  std::vector<TokenSlot> slots;

  int64_t num_tokens() const { return static_cast<int64_t>(slots.size()); }
};

// A sequence from Add to Finish. It waits, runs (has extents) or has ended (all its tokens are
// there, Finish is to come).
struct Sequence {
  SequenceId id;
  uint64_t arrival = 0;
  uint64_t group = 0;           // as SequenceSpec's
  int64_t told_bytes = 0;       // likewise
  std::vector<TokenId> tokens;  // prompt and generated
  int64_t max_tokens = 0;       // prompt + max_new_tokens

  // While it runs. Invariants: num_computed <= num_slots() <= tokens.size(); a prefilling one has
  // all its slots, the first extent's for its first tokens and so on; later tokens went to any of
  // them.
  std::vector<Extent> extents;  // each on another pool
  size_t newest = 0;            // the extent of the token that got its slot last
  int64_t num_computed = 0;     // tokens whose KV is in its slots after the last completed step
  // Of those: a completed step has attended to them on the node, so they are there for others too.
  int64_t num_proven = 0;
  bool prefilling = false;  // until the step that samples its first token is completed
  // Tokens whose KV was there when it started: it is prefilled as decode rows, which attend to
  // them.
  int64_t num_shared = 0;

  int batch = 0;

  // Its part of its batch's step in flight.
  int64_t num_in_flight = 0;  // tokens
  bool samples = false;

  StepId preempted_in;  // the latest plan that preempted it; step 0 is never planned

  bool running() const { return !extents.empty(); }
  int64_t num_slots() const;
  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t start_bytes() const { return kStartBytesPerToken * num_tokens() + told_bytes; }
  // That one is computed: it samples.
  std::span<const TokenId> all_but_last() const {
    return std::span(tokens).first(tokens.size() - 1);
  }
  // Slots it will take in the next steps, beyond those for tokens.size(): the token that is sampled
  // last never gets one.
  int64_t growth() const { return std::min(kGrowthTokens, max_tokens - num_tokens() - 1); }
};

// Has left while its step is in flight: its slots are free when that is completed.
struct Leaving {
  SequenceId id;
  std::vector<Extent> extents;
};

struct Batch {
  bool in_flight = false;  // a step with work is not completed
  std::vector<Leaving> leaving;
  int num_running = 0;
  bool rotates = false;
};

struct Scheduler::State {
  SchedulerOptions options;
  std::unique_ptr<QueuePolicy> queue;
  std::unique_ptr<PlacementPolicy> placement;

  std::map<NodeId, KvPool> pools;         // ordered, so that plans are a function of the calls
  std::map<uint64_t, Sequence*> running;  // by arrival
  std::unordered_map<SequenceId, Sequence> sequences;
  std::vector<Sequence*> prefilling;  // running and not prefilled yet, in the order of their start
  std::vector<SequenceId> released;   // for the next plan
  int64_t num_preemptions = 0, num_started_tokens = 0, num_shared_tokens = 0;
  uint64_t next_arrival = 0;
  StepId next_step{1};
  int64_t start_bytes = 0;  // of those that the plan under way has started
  std::vector<Batch> batches;
  Pipeline pipeline;

  // Tokens that one sequence can have at most; 0 without nodes.
  int64_t capacity_for_one(std::optional<NodeId> without = std::nullopt) const;

  bool InFlight(const Sequence& sequence) const {
    return sequence.num_in_flight > 0 && batches[static_cast<size_t>(sequence.batch)].in_flight;
  }
  bool MayStart(int batch) const;  // another sequence in this one

  // NextStep's parts, in its order.
  void LevelBatch(int batch);  // what it has too many of goes to others
  void PlanDecode(StepPlan& plan);
  void PlanPrefill(StepPlan& plan, int64_t budget_tokens);
  // Gives a started sequence as much of the budget as it can use and returns what is left of it.
  int64_t PlanChunk(Sequence& sequence, StepPlan& plan, int64_t budget_tokens) const;
  int64_t NumRowsLeft(const StepPlan& plan) const;
  bool Start(Sequence& sequence, const StepPlan& plan, std::vector<NodeLoad>& loads);
  // The beginning that its group will share. REQUIRES: it runs.
  bool WillProve(const Sequence& sequence) const;
  std::set<uint64_t> AwaitedGroups() const;  // one of each will
  bool TakeSlots(Sequence& sequence, std::span<const KvShare> shares);
  struct Beginning {  // of a sequence, with KV that is there
    KvPool* pool = nullptr;
    int64_t length = 0;
  };
  // That is worth sharing; nullptr: none.
  Beginning FindBeginning(const Sequence& sequence, std::span<const NodeLoad> loads);
  // Its slots and the rest; likewise.
  bool TakeShared(Sequence& sequence, const Beginning& beginning);
  // For others that begin alike.
  void KeepProven(const Sequence& sequence);
  // It leaves nothing for others, nor does what it shares. REQUIRES: it runs.
  void WithdrawKept(Sequence& sequence);
  enum class Growth { kGrown, kPreempted, kHasToWait };
  Growth GrowByOne(Sequence& sequence, StepPlan& plan);
  KvPool* PoolToGrow(const Sequence& sequence);  // nullptr: all that it may grow on are full
  // Who gives up its slots for it: the newest of those that hold some where it may grow, and it may
  // be the sequence itself. nullptr: there will be slots when what is in flight is completed.
  Sequence* VictimFor(Sequence& sequence) const;
  void Preempt(Sequence& sequence, StepPlan& plan);

  void Enqueue(const Sequence& sequence, bool preempted);
  void GiveUpSlots(
      // Leaves its nodes and batch; its slots are freed now, or when it is no more in flight.
      // REQUIRES: it runs.
      Sequence& sequence);
  // And reports it as released.
  void FreeSlots(SequenceId sequence, const std::vector<Extent>& extents);
  // In whatever state it is; destroys it.
  void Forget(Sequence& sequence);
};

}  // namespace lamina
