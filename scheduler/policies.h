// Where a deployment plugs its own rules in: who is served next, and on which node a sequence is
// placed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace lamina {

// A waiting sequence, as a queue policy sees it.
struct Waiting {
  SequenceId sequence;
  int64_t num_tokens = 0;  // to prefill: prompt, and generated tokens after a preemption
  bool preempted = false;
  uint64_t arrival = 0;  // the how-manieth sequence it was; a preempted one keeps its number
};

// The order of the waiting line. Pure object; holds ids only. The scheduler serves strictly in this
// order: as long as the sequence at the top finds no room, nobody behind it is served, so a long
// prompt is not overtaken for ever. Those that wait for another of their group to compute what they
// will share are passed over: removed, and pushed again, with the same Waiting, when the step is
// planned.
class QueuePolicy {
 public:
  virtual ~QueuePolicy() = default;
  // A preempted sequence keeps its right to be served before newer ones.
  virtual void Push(const Waiting& waiting) = 0;
  // Who is next; it stays. nullopt if and only if size() is 0.
  virtual std::optional<Waiting> Top() const = 0;
  virtual void Remove(SequenceId sequence) = 0;  // served or aborted; unknown ids are ignored
  virtual size_t size() const = 0;
};

// A node's load, as a placement policy sees it.
struct NodeLoad {
  NodeId id;
  int64_t capacity_tokens = 0;
  // Not in use; when a sequence starts, also not kept back for the next tokens of those that are
  // there.
  int64_t free_tokens = 0;
  int num_sequences = 0;
  double speed = 1;  // tokens that attention reads in a given time, relative to the other nodes

  int64_t used_tokens() const { return capacity_tokens - free_tokens; }
};

// Some of a sequence's tokens on one node.
struct KvShare {
  NodeId node;
  int64_t num_tokens = 0;
};

// Chooses where the KV of sequences goes.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;

  // A sequence starts: it needs `num_tokens` slots now and soon `num_growth` more. Returns the
  // shares of its first, second, ... tokens, each on another node, which sum to `num_tokens`;
  // empty: it waits. A node may be chosen if its share fits though the growth does not; a
  // preemption soon after is then likely. More than one share: only if spreads(). To keep every
  // sequence moving, a policy must find a place when all nodes are empty and the sequence fits the
  // largest one (if spreads(): all together).
  virtual std::vector<KvShare> Place(int64_t num_tokens, int64_t num_growth,
                                     std::span<const NodeLoad> nodes) = 0;

  // Whether one sequence's tokens may lie on several nodes, whose partial outputs are merged. It
  // may then grow onto nodes that have none of them yet, and what was accepted need only fit all
  // nodes together.
  virtual bool spreads() const { return false; }

  // Where the next token of a running sequence goes that has `held`. Only asked if spreads().
  // `nodes` are those with a free slot, at least one. Returns one of them.
  virtual NodeId Grow(std::span<const KvShare> held, std::span<const NodeLoad> nodes);
};

// First come, first served; preempted ones in front, oldest first. Every call is O(log waiting).
std::unique_ptr<QueuePolicy> MakeFifoQueue();

// Whole sequences: the node with the least used share of its slots over its speed, among those that
// have room; ties: the fewest sequences, then the lowest id.
std::unique_ptr<PlacementPolicy> MakeLeastLoadedPlacement();

// Sequences of up to `spread_tokens` tokens whole, longer ones over as many nodes as they have that
// many tokens, so that the nodes' attention takes about the same time: used tokens over speed. A
// sequence that grows takes a further node when it has outgrown those it is on, or when they are
// full. So the others decide where tokens lie, and the last bits of merged outputs. REQUIRES:
// spread_tokens >= 1.
std::unique_ptr<PlacementPolicy> MakeSpreadPlacement(int64_t spread_tokens);

}  // namespace lamina
