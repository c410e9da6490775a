// Decides what the next step computes, where the KV of each token goes, and who waits. The
// scheduler is pure policy: no thread, no socket, no clock. It returns decisions, which the manager
// process carries out on real nodes and the simulator in virtual time.
//
// Use: AddNode for each memory node; Add for each sequence that arrives; then, for every batch in
// turn, NextStep, run the plan, CompleteStep with the sampled tokens; Finish when a sequence is
// over.
//
// Continuous batching: the batch is formed anew for every step. Running sequences decode one token
// each; what is left of the token budget goes to prefill in the queue's order, in chunks. When a
// node runs out of token slots, the newest sequence on it is preempted: its slots are freed, it
// goes back to the front of the queue, and its KV is recomputed from its tokens later. Nothing that
// was accepted is lost.
//
// Lost KV: sequences whose KV is gone or may be wrong wait in front and start again in the same
// way. Those that no node could hold to their last token are parked: they wait aside until a node
// joins that can.
//
// Suspended nodes: a node that is late may still answer, so its KV is not given up yet. Sequences
// with tokens there sit out, with their slots, and nothing is placed there, until the node is
// resumed or lost. Those that are not prefilled yet start again elsewhere. Meanwhile a sequence
// that only that node could hold is overtaken.
//
// Batches: with num_batches > 1 several steps are in flight, one of each batch, so that memory
// nodes compute the attention of one batch while compute nodes run slices of another. New sequences
// are started where they keep the batches even. A sequence moves to another batch between two steps
// when the batches have become uneven or their number changes, but never before its prompt is
// prefilled.
//
// Slots: a sequence that starts gets the slots of its whole prefill at once, although its first
// chunk may use only some of them, so that a prefill never stops half-way for want of slots. Every
// decoded token takes one more slot. A start also leaves a few slots free for each sequence on the
// node to grow into, so that it does not cause the next preemption.
//
// Prefixes (SchedulerOptions::prefix_caching): K and V that a completed step has attended to stay
// on their node until somebody else needs the room. A sequence that finds more than half of its
// tokens there starts on that node, shares those slots, and computes the rest by decode rows.
// Sequences that are spread over several nodes neither leave nor use a prefix; those that have to
// compute their prompts leave one, and use none. While the first
// sequence of a group computes the prefix that the others will share, the others wait, and
// sequences behind them in the queue may start; then all of the group that fit start at once.
//
// Another scheduler's sequences: one that is gone may have left K and V of its sequences on nodes.
// Their slots are kept for a while, and a sequence that is added with the handle of one of them
// runs at once, behind the tokens that are there.
//
// Progress: the oldest sequence of a node, by the order of Add, which a preemption does not change,
// is preempted only when it is alone there and has outgrown the node; and the largest node has room
// for every accepted sequence. So with the FIFO queue every sequence ends. With a queue that ranks
// sequences the same holds for the one of the smallest rank, and no token is generated twice, so
// that every sequence ends once no more of smaller ranks come. Where placement spreads sequences
// over nodes, the same holds for all nodes taken as one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/kv_handle.h"
#include "base/scheduler_stats.h"
#include "base/slo.h"
#include "base/status.h"
#include "scheduler/pipeline.h"
#include "scheduler/policies.h"

namespace lamina {

// Upper bound of what one token adds to the order that starts its sequence: the token id and, if
// its K and V are in a shared slot already, the number of that slot; each is a varint of at most
// five bytes.
inline constexpr int64_t kStartBytesPerToken = 10;

struct SchedulerOptions {
  // Most sequences that hold slots at a time, over all batches, and most decode rows of one step.
  int max_num_seqs = 64;
  int num_batches = 1;               // most batches in flight
  int max_num_batched_tokens = 512;  // rows of one step: decoding rows plus prefill tokens
  int64_t max_model_len = 0;         // prompt and output tokens of one sequence
  int max_queued = 1024;             // waiting sequences; more are refused with kTryAgain
  // Whether K and V of running and finished sequences serve others that begin with the same tokens.
  bool prefix_caching = false;
  // Whether a sequence that starts again computes by prefill only what it computed so the first
  // time, and its generated tokens by decode rows: for deployments where the two do not come to the
  // same bits. Not where it is spread over several nodes.
  bool replays_as_computed = false;
  // Most bytes that nodes are told about all sequences that start in one step, counted with
  // kStartBytesPerToken and SequenceSpec::told_bytes. A single sequence that needs more starts
  // alone. The default is just under a third of the control channel's largest frame, which leaves
  // room for the order's other rows.
  int64_t max_start_bytes = int64_t{20} << 20;
  // Tokens of preempted sequences whose K and V find room outside of the nodes: such a sequence
  // goes on with them (StepPlan::swapped_out) instead of computing them again. Not with
  // prefix_caching, nor where sequences are spread over nodes. No node can do that, only the
  // simulator's; 0: none.
  int64_t swap_tokens = 0;
};

// A pool of token slots that sequences can be placed on: a memory node, several memory nodes that
// hold different kv_heads of the same tokens (`id` is then that of the first), or the compute node
// itself when there is no memory node.
struct KvNode {
  NodeId id;
  int64_t capacity_tokens = 0;  // at least 1, at most 2^32
  // Scheduler::SetCapacity may give it up to so many, at most 2^32; 0: no more than at first.
  int64_t most_tokens = 0;
};

struct SequenceSpec {
  SequenceId id;
  std::vector<TokenId> prompt;  // at least one token
  int64_t max_new_tokens = 0;   // at least 1
  // Sequences with the same prompt; 0 for none. With prefix_caching the first of a group computes
  // the prompt and the others wait until they can share it.
  uint64_t group = 0;
  int64_t told_bytes = 0;  // what nodes are told of it when it starts, besides its tokens
  // Tokens that a scheduler that is gone has generated for it, fewer than max_new_tokens; it starts
  // as after a preemption.
  std::vector<TokenId> generated = {};
  // With `generated`: how many of its first tokens it found in the cache when it started the first
  // time; 0 if none.
  int64_t num_cached = 0;
  // With `generated`: it goes on with what is left under this handle, see AddLeft, if that is all
  // of its tokens but the last. If not it starts again.
  KvHandle left = {};
  // What the queue's policy may go by. Smaller priorities are served first.
  int priority = 0;
  TimePoint start = {};  // when it arrived; counts with `slo`
  Slo slo = {};
  // Whether a step has to compute every token of the prompt, because something is asked of each:
  // until it has its first new token the sequence takes none of them from others. It may still give
  // them.
  bool computes_prompt = false;
};

// The part of a sequence that one node holds, and the part of a Work that goes there.
struct KvPart {
  NodeId node;
  int64_t num_stored = 0;        // tokens of the sequence that are there before the step
  std::vector<TokenSlot> slots;  // where the K and V of this step's tokens go
  // Only in the sequence's first work, if it shares a prefix or goes on with what was left: the
  // slots that already hold K and V of its first num_stored tokens.
  std::vector<TokenSlot> shared = {};
};

// One sequence's part of a step: tokens[i] stands at position first_position + i.
struct Work {
  SequenceId sequence;
  // Prefill: the nodes that get tokens of this chunk, in the order of the tokens. Decode: every
  // node that holds tokens of the sequence or gets these; exactly one part has slots.
  std::vector<KvPart> route;
  int64_t first_position = 0;
  // Decode: the token that was sampled last. Prefill: a chunk of the prompt and, after a
  // preemption, of the generated tokens. The rest of a prompt that shares a prefix comes as decode
  // work (`prefill` is false) with several tokens.
  std::vector<TokenId> tokens;
  // The compute node has K and V of all earlier tokens of the sequence and attends to them itself;
  // otherwise only memory nodes have them.
  bool prefill = false;
  // The last token's logits choose the next token: decode, or the last tokens of a start.
  bool sample = false;
  // The sequence's last prefill work: the compute node need not keep its K and V.
  bool ends_prefill = false;
  // The compute nodes do not know the sequence, or only what it was before it started anew.
  bool first = false;
  bool again = false;  // decode: the same as in a step that came back without a sample for it
};

// Of a running sequence on one node: K and V of so many of its tokens there are complete.
struct HeldTokens {
  SequenceId sequence;
  int64_t num_tokens = 0;
};

struct StepPlan {
  StepId step;  // grows by one with every plan that is not empty()
  int batch = 0;
  // Which of n compute nodes run the slices: if true, node (batch + k) mod n runs slice k; if
  // false, node batch mod n runs all.
  bool rotates = false;
  // Sequences whose KV the nodes drop before this step's work: finished, aborted, preempted, or
  // lost with their memory node (the compute node may still hold their prefill). One entry each
  // time a sequence loses its slots; none for a sequence that never had any. Their slots may be in
  // `work` of the same plan for another sequence; the sequence itself starts again in a later plan
  // at the earliest.
  std::vector<SequenceId> released;
  // Before this step's work, K and V of so many first tokens of these sequences, which are in
  // `released` too, are copied out; and then those of these sequences, which begin to run again,
  // are copied into KvPart::shared of their first work.
  std::vector<HeldTokens> swapped_out = {}, swapped_in = {};
  // K and V of prefill work are not computed but made up where they are stored, for benchmarks of
  // decoding. The scheduler leaves it false; its caller sets it.
  bool dummy_prefill = false;
  // As ComputeOrder::offload_interval. The scheduler leaves it empty; its caller sets it.
  std::optional<int> offload_interval = {};
  // By node, where that changes: so many layers of its KV cache are to have a place in memory
  // (base/layers_inside.h). The scheduler leaves it empty; its caller sets it.
  std::map<NodeId, int> layers_inside = {};
  // Decode work first, then prefill. At most one sequence is left partly prefilled after a step,
  // and it continues first.
  std::vector<Work> work;

  bool empty() const { return work.empty() && released.empty(); }
};

// What becomes of the sequences that a lost node concerns; both oldest first.
struct LostSequences {
  // They had tokens on it, and wait to start again elsewhere.
  std::vector<SequenceId> again;
  // No node that is left could hold them to their last token (the rule of Add), whether they had
  // tokens there or not.
  std::vector<SequenceId> parked;
};

// Thread: one owner. Steps of one batch do not overlap: its NextStep and CompleteStep alternate;
// Add, Finish, LoseNode and Suspend may come at any time, also between the two.
class Scheduler {
 public:
  // REQUIRES: every number in `options` is positive.
  Scheduler(const SchedulerOptions& options, std::unique_ptr<QueuePolicy> queue,
            std::unique_ptr<PlacementPolicy> placement);
  ~Scheduler();

  // Parked sequences that have room now wait in front. REQUIRES: no node has this id now (aborts
  // otherwise). A lost node may be added again, empty.
  void AddNode(const KvNode& node);

  // A scheduler that is gone has left K and V of a sequence's first tokens in these slots of the
  // node, in all layers. Nobody else gets them until a sequence goes on with them
  // (SequenceSpec::left), or DropLeft, or a sequence that runs needs them. Ignored if the node is
  // unknown or has no such slots, or if the handle is known. REQUIRES: no sequence was added yet.
  void AddLeft(const KvHandle& handle, NodeId node, std::vector<TokenSlot> slots);
  // Frees what no sequence has gone on with.
  void DropLeft();
  bool has_left() const;

  // The node has room for so many tokens from now on: its slots are those below. If that are fewer
  // than before, sequences with other slots go back to the front of the queue, and cached prefixes
  // that nobody uses are evicted, as is what another scheduler has left there. Which sequences are
  // accepted depends on the capacity at first alone. Ignored if the node is unknown.
  // REQUIRES: no less than its capacity at first, and no more than most_tokens.
  void SetCapacity(NodeId node, int64_t tokens);
  // Whether the node was added with these capacities.
  bool Has(const KvNode& node) const;
  // Whether a step in flight still uses slots that SetCapacity has taken away.
  bool IsOverCapacity(NodeId node) const;

  // Sets how fast the node's attention is relative to the other nodes; 1 at first. Placement takes
  // it into account from the next start or token on. Unknown nodes are ignored. REQUIRES: speed >
  // 0.
  void SetSpeed(NodeId node, double speed);

  // To be called when no step in flight will be completed, the compute nodes have forgotten
  // everything, and the nodes keep of KV what Held says. Sequences that are not prefilled yet go
  // back to the front of the queue; the others go on where the last completed step left them. No
  // node is suspended any more.
  void AbandonSteps();
  // What each node must hold of the sequences that run, those with no tokens there left out.
  // REQUIRES: no step is in flight.
  std::map<NodeId, std::vector<HeldTokens>> Held() const;
  // The node has forgotten everything, and stays: sequences with tokens there go back to the front
  // of the queue with the tokens they have, and its cached prefixes are dropped. Unknown nodes are
  // ignored. REQUIRES: no step is in flight.
  void DropKv(NodeId node);

  // Sets how steps share the compute nodes from the next plans on. Before the first call there are
  // SchedulerOptions::num_batches batches that do not rotate. When the number shrinks, the
  // sequences of a surplus batch move to others once they decode. REQUIRES: pipeline.num_batches is
  // 1 to SchedulerOptions::num_batches.
  void SetPipeline(const Pipeline& pipeline);

  // The node is gone, with its KV. Sequences that had tokens on it give up the rest of their slots;
  // what a step in flight comes to for them is ignored. Unknown nodes are ignored.
  LostSequences LoseNode(NodeId node);

  // The node is late, and keeps its KV. Sequences with tokens there get no work; what is planned
  // for them before may come back without a sample, and is computed again later. Returns those that
  // start again instead, oldest first, because their prefill is not complete: what a step in flight
  // comes to for them is ignored. Unknown and suspended nodes are ignored.
  std::vector<SequenceId> Suspend(NodeId node);
  // The node is in time again, and everything that was sent to it before has arrived. Ignored if it
  // is not suspended.
  void Resume(NodeId node);

  // Sequences that have no token, do not run, and whose first token was due by `now`: their
  // objective cannot be met any more. Those that become due first come first, and each is returned
  // once.
  std::vector<SequenceId> TakeHopeless(TimePoint now);
  // No call before this time returns anything.
  TimePoint next_hopeless() const;
  // The sequence is hopeless, and the queue's policy may serve others before it. Ignored if it does
  // not wait.
  void PutLast(SequenceId sequence);

  // The sequence's KV is lost or may be wrong: it gives up its slots, waits in front and starts
  // again with the tokens it has, and no other sequence is given K and V that this one computed or
  // shared. Ignored if it does not run.
  void Again(SequenceId sequence);

  // Whether the sequence waits for a node that could hold it.
  bool IsParked(SequenceId sequence) const;

  // Queues a new sequence; parks it if there is no node at all. Returns
  //   kInvalidArgument: the prompt is empty, max_new_tokens is less than 1 or they are generated
  //     already, num_cached is not less than the prompt, the id is in use, or the sequence could
  //     become longer than max_model_len or than the largest node can ever hold (all nodes together
  //     if placement spreads); the message gives the numbers,
  //   kTryAgain: the queue is full, and it has no generated tokens.
  // The API layer clips max_new_tokens to max_model_len before; here it is an error.
  Status Add(SequenceSpec spec);

  // The sequence is over, finished or aborted. Its slots are freed and it is in `released` of the
  // next plan; if it is in a step in flight, of the first plan after that step is completed,
  // because its KV may still be read. Unknown ids are ignored.
  void Finish(SequenceId sequence);

  // Finish, for a sequence whose KV may be wrong: from now on no other sequence is given K and V
  // that this one has computed or shares where it runs. Those that share them already go on, and
  // what it had when it lost its slots before stays.
  void Fail(SequenceId sequence);

  // Plans the next step of the batch. The plan is empty() if nothing of the batch can run; a plan
  // without work that holds `released` must still reach the nodes, so that they free their tables.
  // With several batches a sequence that needs a slot may have to sit a step out, because those
  // that could be preempted for it are in flight. REQUIRES: the batch's last step is completed, if
  // it had work (aborts otherwise).
  StepPlan NextStep(int batch = 0);

  // Whether what the batch's step in flight comes to counts for the sequence: not if it is over, or
  // has lost its slots since the step was planned.
  bool IsInStep(SequenceId sequence, int batch = 0) const;

  // Takes what a step sampled: one entry for each Work with `sample`, except for sequences that are
  // finished by now. Returns the indices of the entries that it took, in their order: those of
  // sequences that are in this step, see IsInStep, and the first of each. Only these tokens are the
  // sequences'. A row without an entry is computed again. A sequence that has reached its
  // max_new_tokens gives its slots back and gets no more work, but is known until the caller calls
  // Finish. Does nothing if the batch has no step in flight.
  struct Sampled {
    SequenceId sequence;
    TokenId token = 0;
  };
  std::vector<size_t> CompleteStep(std::span<const Sampled> sampled, int batch = 0);

  // Tokens of a sequence so far: prompt and generated. Empty for an unknown one. Borrowed until the
  // next call that changes the scheduler.
  std::span<const TokenId> Tokens(SequenceId sequence) const;

  // What a sequence was promised, and how far it is. All zero for an unknown one.
  struct Promise {
    Slo slo;
    TimePoint start;  // when it arrived
    int64_t num_tokens = 0, num_generated = 0;
  };
  Promise PromiseOf(SequenceId sequence) const;

  SchedulerStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lamina
