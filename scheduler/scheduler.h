// Decides what the next step computes, where each token's KV goes, and who waits. Pure policy: no
// thread, no socket, no clock. It returns decisions; the manager process carries them out on real
// nodes and the simulator in virtual time.
//
// Continuous batching: the batch is formed anew for every step. Running sequences decode one token
// each; what is left of the token budget goes to prefill in the queue's order, in chunks. When a
// node runs out of token slots the newest sequence on it is preempted: its slots are freed, it goes
// back to the front of the queue and its KV is recomputed from its tokens later. Nothing that was
// accepted is lost.
//
// Batches: with num_batches > 1 there are several steps in flight, one of each batch, so that
// memory nodes compute attention of one while compute nodes run slices of another. Starts keep the
// batches even; a sequence changes its batch between steps when they have become uneven or their
// number changes, but not before its prompt is prefilled.
//
// Slots: a sequence that starts gets the slots of its whole prefill at once (the first chunk may
// use only some), so that a prefill never waits half-way for room; every decoded token takes one
// more. A start also leaves a few slots free for each sequence on the node to grow into, so that it
// does not cause the next preemption.
//
// Prefixes (prefix_caching): what a completed step has attended to on a node stays there as long as
// nobody else wants the room. A sequence at least half of whose tokens are found so starts on that
// node with their slots, shared, and computes the rest by decode rows. Sequences on several nodes
// neither leave nor take such a beginning. While the first of a group computes what the others will
// share, those wait and whoever is behind them in the queue does not; then all that fit start at
// once.
//
// Progress: the oldest sequence of a node (by Add order, kept over preemptions) is preempted only
// when it is alone there and has outgrown the node; the largest node has room for every accepted
// sequence. So with the FIFO queue every sequence ends. Where sequences spread over nodes, the same
// holds with all nodes taken as one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "scheduler/pipeline.h"
#include "scheduler/policies.h"

namespace lamina {

// For each token of a sequence that starts nodes are told the token, and maybe the slot where its K
// and V are already: at most five bytes each.
inline constexpr int64_t kStartBytesPerToken = 10;

struct SchedulerOptions {
  // Sequences that hold slots at a time: the rows that may decode in one step of every batch.
  int max_num_seqs = 64;
  int num_batches = 1;               // at most
  int max_num_batched_tokens = 512;  // rows of one step: decoding rows plus prefill tokens
  int64_t max_model_len = 0;         // prompt + output tokens of one sequence
  int max_queued = 1024;             // waiting sequences; more are refused with kTryAgain
  // K and V of sequences that are over, or run, serve others that begin with the same tokens.
  bool prefix_caching = false;
  // What nodes are told of the sequences that start in one step comes to at most so many bytes
  // (kStartBytesPerToken), unless a single one needs more: that one starts alone. A third of the
  // largest frame of the control channel, which leaves room for the other rows.
  int64_t max_start_bytes = int64_t{20} << 20;
};

// A pool of token slots that sequences can be placed on: a memory node, several that hold different
// kv_heads of the same tokens (`id` is then the first one's), or the compute node itself when there
// is none.
struct KvNode {
  NodeId id;
  int64_t capacity_tokens = 0;  // at least 1, at most 2^32
};

struct SequenceSpec {
  SequenceId id;
  std::vector<TokenId> prompt;  // at least one token
  int64_t max_new_tokens = 0;   // at least 1
  // Not 0: with prefix_caching the first of the group computes the prompt, the others wait to share
  // it.
  uint64_t group = 0;
  int64_t told_bytes = 0;  // what nodes are told of it when it starts, besides its tokens
};

// What of a sequence is on one node, and what of a Work goes there.
struct KvPart {
  NodeId node;
  int64_t num_stored = 0;        // tokens of the sequence that are there before the step
  std::vector<TokenSlot> slots;  // where the K and V of this step's tokens go
  // With the sequence's first work: where K and V of its first num_stored tokens are already.
  std::vector<TokenSlot> shared = {};
};

// One sequence's part of a step: tokens[i] stands at position first_position + i.
struct Work {
  SequenceId sequence;
  // Prefill: where the chunk's tokens go, in their order. Decode: every node that holds tokens of
  // the sequence or gets these; exactly one part has slots.
  std::vector<KvPart> route;
  int64_t first_position = 0;
  // Decode: the one sampled last; prefill: a chunk of prompt (and, after a preemption, generated)
  // tokens. A prompt that begins as another did is prefilled by decode rows, several of them in a
  // step.
  std::vector<TokenId> tokens;
  // KV of the tokens before is on the compute node's prefill cache, not on memory nodes alone.
  bool prefill = false;
  // The last token's logits choose the next token (decode, or a prefill's last chunk).
  bool sample = false;
  bool first = false;  // since it got its slots
};

struct StepPlan {
  StepId step;  // grows by one with every plan that is not empty()
  int batch = 0;
  // Of n compute nodes number (batch + k) mod n runs slice k; else number batch mod n runs all.
  bool rotates = false;
  // Sequences whose KV nodes drop before this step's work: finished, aborted, preempted, or lost
  // with their memory node (the compute node may still hold their prefill). One entry each time a
  // sequence loses its slots; none for a sequence that never had any. Their slots may be in `work`
  // of the same plan for another sequence; a preempted sequence starts again in a later plan at the
  // earliest.
  std::vector<SequenceId> released;
  // K and V of prefill work are made up where they are stored: for benchmarks of decoding.
  bool dummy_prefill = false;
  // Decode first, then prefill; at most one sequence is left partly prefilled after a step, and it
  // continues first.
  std::vector<Work> work;

  bool empty() const { return work.empty() && released.empty(); }
};

struct NodeUse {
  NodeId id;
  int64_t capacity_tokens = 0;
  int64_t used_tokens = 0;    // by sequences
  int64_t cached_tokens = 0;  // idle, but there for sequences that begin alike
  int num_sequences = 0;
};

struct SchedulerStats {
  int num_running = 0;  // have slots
  int num_waiting = 0;
  int64_t num_preemptions = 0;     // since the start
  int64_t num_started_tokens = 0;  // likewise: of sequences when they started
  int64_t num_shared_tokens = 0;   // of those: found in the cache
  std::vector<NodeUse> nodes;      // in the order of their ids
};

// Thread: one owner. Steps of one batch do not overlap: its NextStep and CompleteStep alternate;
// Add, Finish and LoseNode may come at any time, also between the two.
class Scheduler {
 public:
  // REQUIRES: options are positive.
  Scheduler(const SchedulerOptions& options, std::unique_ptr<QueuePolicy> queue,
            std::unique_ptr<PlacementPolicy> placement);
  ~Scheduler();

  // REQUIRES: no node has this id now (a lost one may come back, empty).
  void AddNode(const KvNode& node);

  // How fast the node's attention is, relative to the others; 1 at first. Placement takes it into
  // account from the next start or token on. Unknown nodes are ignored. REQUIRES: speed > 0.
  void SetSpeed(NodeId node, double speed);

  // All nodes have forgotten everything, and no step in flight will be completed: what ran waits
  // again, in front, with the tokens it has.
  void Restart();

  // How steps share the compute nodes from the next plans on; before the first call num_batches in
  // flight that do not rotate. A batch too many ends as its steps do. REQUIRES:
  // pipeline.num_batches is 1 to SchedulerOptions::num_batches.
  void SetPipeline(const Pipeline& pipeline);

  // The node is gone, with its KV. Returns the sequences that fail with it, oldest first; they are
  // forgotten (the caller reports them): those that had tokens on it, and those anywhere that no
  // remaining node could hold to their last token (Add's rule). The others go on. Unknown nodes are
  // ignored.
  std::vector<SequenceId> LoseNode(NodeId node);

  // kInvalidArgument: empty, known already, longer than max_model_len, or than the largest node can
  // ever hold (the message gives the numbers). kTryAgain: the queue is full. kPeerLost: there is no
  // node. `max_new_tokens` beyond max_model_len is an error here, the API layer clips before.
  Status Add(SequenceSpec spec);

  // The sequence is over (finished or aborted); its slots are freed and reported in the next plan's
  // `released`: if it is in a step in flight, in the next plan after that, because its KV may still
  // be read. Unknown ids are ignored.
  void Finish(SequenceId sequence);

  // As Finish, for a sequence whose KV may be wrong: nothing of it is there for others from now on,
  // be it computed or shared by it. Those that share it already go on.
  void Fail(SequenceId sequence);

  // The batch's next step; empty() when nothing of it can run, and it may hold `released` only, for
  // the nodes to free their tables. With several batches a sequence that needs a slot may have to
  // sit a step out: those that could be preempted for it are in flight. REQUIRES: the batch's step
  // before is completed, if it had work (aborts otherwise).
  StepPlan NextStep(int batch = 0);

  // What a step sampled, one entry for each Work with `sample`, except for sequences that are
  // finished by now (entries of unknown sequences are ignored; a row without an entry is computed
  // again). A sequence that reached its max_new_tokens is not finished by itself: it gives its
  // slots back and gets no more work, and the caller calls Finish.
  struct Sampled {
    SequenceId sequence;
    TokenId token = 0;
  };
  void CompleteStep(std::span<const Sampled> sampled, int batch = 0);

  // Tokens of a sequence so far: prompt and generated. Empty for an unknown one. Borrowed until the
  // next call that changes the scheduler.
  std::span<const TokenId> Tokens(SequenceId sequence) const;

  SchedulerStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lamina
