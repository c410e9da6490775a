// Where a deployment plugs in rules of its own: which waiting sequence is served next, and on which
// node a sequence is placed. Policies are pure objects without threads or I/O, called by the
// scheduler's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace lamina {

// A sequence that waits, or runs, as a queue policy sees it.
struct Waiting {
  SequenceId sequence;
  int64_t num_tokens = 0;  // to prefill: prompt, and generated tokens after a preemption
  bool preempted = false;
  uint64_t arrival = 0;  // counts sequences in the order of Add; a preempted one keeps its number
  int priority = 0;      // SequenceSpec::priority
  TimePoint due = TimePoint::max();  // of its next token, see base/slo.h
  bool hopeless = false;             // see Scheduler::PutLast
};

// The order of the waiting sequences. The scheduler serves strictly in this order: as long as the
// sequence at the top finds no room, nobody behind it is served, so that a long prompt is not
// overtaken for ever. The one exception are sequences that wait until another of their group has
// computed what they will share: they are passed over, that is, removed while the step is planned
// and then pushed again with the same Waiting.
class QueuePolicy {
 public:
  virtual ~QueuePolicy() = default;
  // Adds a sequence that is not in the queue. A preempted sequence should be served before newer
  // ones.
  virtual void Push(const Waiting& waiting) = 0;
  // The sequence to serve next, which stays in the queue. nullopt if and only if size() is 0.
  virtual std::optional<Waiting> Top() const = 0;
  virtual void Remove(SequenceId sequence) = 0;  // served or aborted; unknown ids are ignored
  virtual size_t size() const = 0;

  // Whether running sequences get slots, and lose them, by Rank. If not, by age alone.
  virtual bool ranks() const { return false; }
  // Those with a smaller rank get their slots first. When a node has none left, the one with the
  // largest is preempted; of equals the newest.
  virtual int64_t Rank(const Waiting&) const { return 0; }
};

// A node's load, as a placement policy sees it.
struct NodeLoad {
  NodeId id;
  int64_t capacity_tokens = 0;
  // Slots that no sequence owns. When a sequence is to start, the slots that running sequences will
  // soon grow into are not counted as free either.
  int64_t free_tokens = 0;
  int num_sequences = 0;
  double speed = 1;  // tokens that attention reads in a given time, relative to the other nodes

  int64_t used_tokens() const { return capacity_tokens - free_tokens; }
};

// The part of a sequence's tokens that goes to one node.
struct KvShare {
  NodeId node;
  int64_t num_tokens = 0;
};

// Chooses the nodes that hold the KV of a sequence.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;

  // Places a sequence that is to start: it needs `num_tokens` slots now and soon `num_growth` more.
  // Returns shares that sum to `num_tokens`, each on another node: the first share is the
  // sequence's first tokens, and so on. Empty: the sequence has to wait. Only a policy that
  // spreads() may return more than one share. A node may be chosen if the share fits but the growth
  // does not; a preemption is then likely soon. So that every sequence makes progress, a policy
  // must find a place when all nodes are empty and the sequence fits the largest one (if spreads(),
  // all of them together).
  virtual std::vector<KvShare> Place(int64_t num_tokens, int64_t num_growth,
                                     std::span<const NodeLoad> nodes) = 0;

  // Whether one sequence's tokens may lie on several nodes, whose partial outputs are merged. A
  // sequence may then grow onto nodes that have none of its tokens yet, and it is accepted if it
  // fits all nodes together.
  virtual bool spreads() const = 0;

  // Chooses where the next token of a running sequence goes, whose tokens lie as `held` says.
  // Called only if spreads(). `nodes` are those with a free slot, at least one; returns one of
  // them.
  virtual NodeId Grow(std::span<const KvShare> held, std::span<const NodeLoad> nodes) = 0;
};

// First come, first served, with preempted sequences in front, oldest first. Every call takes
// logarithmic time in the number of waiting sequences.
std::unique_ptr<QueuePolicy> MakeFifoQueue();

// The smallest priority first; among equals as MakeFifoQueue. A sequence that is preempted is
// overtaken only by those of a smaller priority.
std::unique_ptr<QueuePolicy> MakePriorityQueue();

// The sequence whose next token is due first; then those that are hopeless or have no objective,
// as in MakeFifoQueue. Of running sequences those that are furthest ahead of their objective are
// preempted first.
std::unique_ptr<QueuePolicy> MakeDeadlineQueue();

// Places each sequence as a whole: of the nodes that have room for it and its growth, on the one
// with the smallest used share of its slots divided by its speed; among equals on the one with the
// fewest sequences, then the lowest id.
std::unique_ptr<PlacementPolicy> MakeLeastLoadedPlacement();

// Spreads a sequence of n tokens over ceil(n / spread_tokens) nodes, or over more if these have too
// little room, so that attention takes about the same time on all of them; the time of a node is
// taken to be its used tokens divided by its speed. A sequence that grows takes a further node when
// it has outgrown those it is on, or when they are full. Where its tokens lie therefore depends on
// the other sequences, and with it the last bits of its merged outputs. REQUIRES:
// spread_tokens >= 1.
std::unique_ptr<PlacementPolicy> MakeSpreadPlacement(int64_t spread_tokens);

}  // namespace lamina
