// Where a deployment plugs its own rules in: who is served next, and on which node a sequence is placed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/ids.h"

namespace lamina {

// A waiting sequence, as a queue policy sees it.
struct Waiting {
  SequenceId sequence;
  int64_t num_tokens = 0;  // to prefill: prompt, and generated tokens after a preemption
  bool preempted = false;
  uint64_t arrival = 0;  // the how-manieth sequence it was; a preempted one keeps its number
};

// The order of the waiting line. Pure object; holds ids only. The scheduler serves strictly in this order: as long as the sequence at the
// top finds no room, nobody behind it is served, so a long prompt is not overtaken for ever.
class QueuePolicy {
 public:
  virtual ~QueuePolicy() = default;
  virtual void Push(const Waiting& waiting) = 0;   // a preempted sequence keeps its right to be served before newer ones
  virtual std::optional<Waiting> Top() const = 0;  // who is next; it stays. nullopt if and only if size() is 0
  virtual void Remove(SequenceId sequence) = 0;    // served or aborted; unknown ids are ignored
  virtual size_t size() const = 0;
};

// A node's load, as a placement policy sees it.
struct NodeLoad {
  NodeId id;
  int64_t capacity_tokens = 0;
  int64_t free_tokens = 0;  // not in use, and not kept back for the next tokens of the sequences that are there
  int num_sequences = 0;
};

// Chooses a node for a sequence that needs `num_tokens` slots now (its tokens so far and a few to grow into); nullopt: it waits. A node
// with fewer free_tokens may be chosen if the tokens so far fit; a preemption soon after is then likely. To keep every sequence moving, a
// policy must choose some node when all are empty (the largest one then has room for whatever the scheduler accepted).
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  virtual std::optional<NodeId> Place(int64_t num_tokens, std::span<const NodeLoad> nodes) = 0;
};

// First come, first served; preempted ones in front, oldest first. Every call is O(log waiting).
std::unique_ptr<QueuePolicy> MakeFifoQueue();

// The node with the least used share of its slots among those that have room; ties: the fewest sequences, then the lowest id.
std::unique_ptr<PlacementPolicy> MakeLeastLoadedPlacement();

}  // namespace lamina
