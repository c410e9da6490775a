// Plays the nodes that a scheduler plans for, and checks every plan against what they hold. The
// "model" samples a hash of the tokens that stand in the sequence's slots, read back position by
// position: a slot that was given to two tokens changes what is generated.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "scheduler/scheduler.h"

namespace lamina {

// The token that follows `tokens`.
TokenId NextToken(std::span<const TokenId> tokens);

// The prompt of length `num_tokens` that tests give to sequence `id`.
std::vector<TokenId> MakePrompt(SequenceId id, int64_t num_tokens);

// Prompt and generated tokens as they come without any scheduler.
std::vector<TokenId> GenerateAlone(std::vector<TokenId> prompt, int64_t num_new_tokens);

class FakeKvNodes {
 public:
  // `spreads`: as the placement policy says.
  FakeKvNodes(const SchedulerOptions& options, bool spreads)
      : options_(options), spreads_(spreads) {}

  // Those with a smaller rank get slots first; without it all have the same.
  using Rank = std::function<int64_t(const SequenceSpec& spec, int64_t num_generated)>;
  void OrderBy(Rank rank) { rank_ = std::move(rank); }
  static int64_t Priority(const SequenceSpec& spec, int64_t) { return spec.priority; }
  // When its next token is due; the end of time without an objective for the first one.
  static int64_t Due(const SequenceSpec& spec, int64_t num_generated) {
    if (spec.slo.ttft == Clock::duration::zero()) return std::numeric_limits<int64_t>::max();
    return (spec.start.time_since_epoch() + spec.slo.ttft + num_generated * spec.slo.tpot).count();
  }

  void AddNode(const KvNode& node) {
    capacity_tokens_[node.id] = std::max(node.capacity_tokens, node.most_tokens);
  }
  // Its content is gone; sequences on it must be released.
  void LoseNode(NodeId node);
  // The sequence's step in flight will not count: it must be released and starts again. Returns
  // whether it was in one.
  bool Recall(SequenceId sequence);
  // Nobody works there until it is resumed.
  void Suspend(NodeId node) { suspended_.insert(node); }
  void Resume(NodeId node) { suspended_.erase(node); }
  bool SitsOut(SequenceId sequence) const;
  // Its row of the step in flight comes back without a sample, and is to be computed again.
  void BeLate(SequenceId sequence);
  int64_t num_again() const { return num_again_; }  // rows that were
  int64_t num_kept() const { return num_kept_; }    // sequences, by Abandon
  // The scheduler took it, in this order.
  void Accept(const SequenceSpec& sequence);
  // It goes on with what is left on this node, which knows nothing of it before its first work.
  void GoesOn(SequenceId sequence, NodeId node) { untold_[sequence] = node; }
  // The scheduler was told to finish it.
  void Forget(SequenceId sequence);
  // Nothing that it holds may be shared with others from now on.
  void Distrust(SequenceId sequence);
  // Its step is no more in flight. Returns the sequences that were in it.
  std::set<SequenceId> Completed(int batch);
  // No step in flight will be completed, and these tokens of them are gone. Checks that what is
  // said to be held is what is there, and drops everything else.
  void Abandon(std::span<const Scheduler::Sampled> never_told,
               const std::map<NodeId, std::vector<HeldTokens>>& held);
  // The node's content is gone; sequences on it must be released.
  void DropKv(NodeId node);

  // What is there of a sequence, when its scheduler is gone.
  struct Left {
    SequenceSpec spec;  // to go on with it, but for `left`
    NodeId node;        // 0: not all on one node
    std::vector<TokenSlot> slots;
  };
  // The scheduler is gone, and these tokens. Tables are forgotten, and what they held stays. By
  // arrival; Accept follows for those that another scheduler takes.
  std::vector<Left> TakeLeft(std::span<const Scheduler::Sampled> never_told);

  // Checks the plan, carries it out and returns what it samples. Failures are gtest failures.
  std::vector<Scheduler::Sampled> Run(const StepPlan& plan);

  const std::vector<TokenId>& tokens(SequenceId sequence) const {
    return sequences_.at(sequence).tokens;
  }
  bool done(SequenceId sequence) const;  // has all its tokens
  bool holds(SequenceId sequence) const { return tables_.contains(sequence); }
  const std::vector<SequenceId>& first_starts() const { return first_starts_; }
  int64_t num_preemptions() const { return num_preemptions_; }
  int64_t num_held_tokens() const;  // in slots that a sequence owns
  int64_t num_shared() const { return num_shared_; }
  int64_t num_swapped() const { return num_swapped_; }  // sequences that came back
  // Sequences that were on several nodes at a time.
  size_t num_spread() const { return spread_.size(); }

 private:
  using Place = std::pair<NodeId, TokenSlot>;
  struct Accepted {
    uint64_t arrival = 0;
    SequenceSpec spec;
    std::vector<TokenId> tokens;
    size_t max_tokens = 0;
    size_t num_prompt = 0;
    size_t num_prefilled = 0;  // of its first start: by prefill, or shared
    bool sampled = false;      // by its step in flight
  };
  struct Content {
    TokenId token = 0;
    TokenId behind = 0;   // what the token and all before it come to
    int num_owners = 0;   // 0: the slot may be written again
    bool proven = false;  // a decode step that is completed has read it
    bool wrong = false;   // maybe
  };
  struct Table {  // of a sequence that has slots
    // Its first tokens with others: the rest of its prefill are decode rows.
    bool shares = false;
    std::vector<Place> places;            // by position
    std::map<NodeId, int64_t> num_there;  // tokens by node
    bool decoding = false;                // its prefill is complete
    bool attended = false;                // its last rows were decode rows
    bool late = false;                    // its last row came back without a sample
    bool known = true;                    // to the compute nodes

    bool shares_node(const Table& other) const;
  };

  bool InFlight(SequenceId sequence) const;
  void Leave(SequenceId sequence) { (InFlight(sequence) ? leaving_ : due_).insert(sequence); }
  void Release(const StepPlan& plan);
  void SwapOut(const StepPlan& plan);
  void SwapIn(const StepPlan& plan);
  void Disown(const Table& table);
  void DropSamples(std::span<const Scheduler::Sampled> never_told);
  void CheckVictims(const std::map<SequenceId, Table>& victims, const StepPlan& plan) const;
  // Whether a sequence before this one may hold slots there that nodes know nothing of.
  bool MayShareWithUntold(SequenceId sequence, const Table& table) const;
  // Slots are given in this order and taken in the opposite one: by rank, then by age.
  std::pair<int64_t, uint64_t> OrderOf(SequenceId sequence) const;
  void CheckShape(const StepPlan& plan) const;
  void TakeShared(const Work& work, Table& table);
  void CheckPhase(const Work& work, const Table& table) const;
  // How many of its first tokens it computes by prefill.
  size_t NumToPrefill(SequenceId sequence, const Table& table) const;
  void Write(const Work& work);
  void CutLate(const Work& work, Table& table);
  std::vector<Place> PlacesOf(const Work& work, Table& table);
  TokenId Sample(const Work& work);

  SchedulerOptions options_;
  bool spreads_;
  Rank rank_;
  std::map<NodeId, int64_t> capacity_tokens_;
  std::set<SequenceId> spread_;
  std::map<SequenceId, Accepted> sequences_;
  std::map<SequenceId, Table> tables_;
  // Go on there, or were preempted before nodes knew of it and wait.
  std::map<SequenceId, NodeId> untold_;
  std::map<Place, Content> content_;
  std::map<SequenceId, std::vector<Content>> swapped_;  // what was copied out
  std::map<int, std::set<SequenceId>> in_flight_;       // by batch
  std::set<SequenceId> leaving_;                        // over, but in flight: will be due
  std::set<SequenceId> due_;                            // must be in the next plan's released
  std::vector<SequenceId> first_starts_;
  std::set<SequenceId> started_;
  uint64_t next_arrival_ = 0;
  std::set<NodeId> suspended_;
  int64_t num_preemptions_ = 0, num_shared_ = 0, num_again_ = 0, num_kept_ = 0, num_swapped_ = 0;
  StepId last_step_;
};

}  // namespace lamina
