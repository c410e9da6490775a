// The nodes as the engine sees them: they take one step's orders and answer later. Implemented by
// the cluster (cluster_executor.h) and, for the engine in one process, by
// bench/in_process_executor.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/status.h"
#include "manager/engine.h"
#include "model/model_config.h"
#include "scheduler/scheduler.h"
#include "wire/session_messages.h"
#include "wire/step_messages.h"

namespace lamina {

// What a memory node says of its KV when it is connected.
struct NodeKv {
  uint64_t id = 0;  // Configured::kv_id
  // Sequences whose tokens it was to keep and does not have.
  std::vector<SequenceId> missing = {};
};

// A KV cache of which not all layers need to have a place in memory, and how many have one.
struct ElasticCache {
  ElasticKv kv;
  int inside = 0;
};

struct NodeSpeed {
  NodeId node;
  double speed = 1;  // as Scheduler::SetSpeed
};

// What executors report, whenever it happens.
struct ExecutorEvent {
  enum class Kind {
    kStepDone,  // `result` of a step in flight
    kNodeLost,  // a memory node: `node`, `status`
    // A compute node: no step in flight will be done, nothing more can run here; `node`, `status`.
    // Node 0: none is lost for good, all are to be connected anew.
    kComputeLost,
    // A memory node: `node`, is late, with `status`: the compute node `by` waits for it no longer.
    // It has no part in steps until all of them have it resumed, or it is lost. Comes before the
    // results of steps that have gone on without it, and may come more than once.
    kNodeSuspended,
    kNodeResumed,  // that one answers `by` again: `node`
    kSpeeds,       // of attention on kv_nodes(), measured anew: `speeds`
    // Of the KV cache of one of elastic_kv(): `node`, `layers_inside`. Comes before the result of
    // the step that has told it.
    kLayersInside,
  };
  Kind kind = Kind::kStepDone;
  StepResult result;
  NodeId node;
  Status status;
  std::vector<NodeSpeed> speeds = {};
  NodeId by = {};
  uint64_t suspension = 0;  // by that compute node: PeerState::suspension
  LayersInside layers_inside = {};
};

class StepExecutor {
 public:
  virtual ~StepExecutor() = default;

  // Where token slots are. Fixed before Start.
  virtual std::vector<KvNode> kv_nodes() const = 0;

  // The one of kv_nodes() that `node` is part of.
  virtual NodeId KvNodeOf(NodeId node) const = 0;

  // Of each memory node. Fixed before Start.
  virtual std::map<NodeId, NodeKv> kv() const = 0;

  // By memory node: what a manager that is gone left there. Empty when it was taken.
  virtual std::map<NodeId, LeftKv> TakeLeftKv() { return {}; }

  // The largest interval (ComputeOrder::offload_interval) that all nodes have memory for, where it
  // is not fixed; 0: all weights find room. Fixed before Start.
  virtual int largest_interval() const { return 0; }

  // Those of kv_nodes() of whose layers as many have a place as plans say. Fixed before Start.
  virtual std::map<NodeId, ElasticCache> elastic_kv() const { return {}; }

  // Events go to `on_event` from here on, from any thread; a loss may be told twice. REQUIRES:
  // called once.
  virtual void Start(std::function<void(ExecutorEvent)> on_event) = 0;

  // Sends a step's orders. One kStepDone or kComputeLost follows. Thread: the engine's.
  virtual void Submit(const StepPlan& plan, std::vector<NewSequence> added) = 0;

  // A memory node of kNodeLost is given up by everybody: its session ends, so that it is free to be
  // taken again, and compute nodes do not wait for it any longer. Thread: the engine's.
  virtual void Leave(NodeId node) = 0;

  // Does what is due by the time, such as asking nodes for their counters; waits for nobody.
  // Returns when it is to be called next. Thread: the engine's.
  virtual TimePoint Turn(TimePoint now) = 0;

  // The nodes' own view for `lamina cluster status`, as of when they were asked last. Waits for
  // nobody. Thread: any.
  virtual std::vector<NodeStatus> nodes() = 0;

  // Likewise compute nodes that wait for the place of one that is lost: kStandby, or kLost if they
  // could not take it.
  virtual std::vector<NodeStatus> standbys() { return {}; }
};

// The orders of one step. Work with slots and no tokens is for its memory nodes alone. `local`:
// attention stays on the compute node, which needs the slots then. `node`: as routes name it.
ComputeOrder MakeComputeOrder(uint64_t epoch, const StepPlan& plan, std::vector<NewSequence> added,
                              bool local);
MemoryOrder MakeMemoryOrder(uint64_t epoch, const StepPlan& plan, NodeId node);

// Upper bound of the bytes that these take in an order.
size_t MaxOrderBytes(const SamplingParams& sampling);
// None of a step's orders is larger; it may be much more than they are.
size_t MaxOrderBytes(const StepPlan& plan, std::span<const NewSequence> added);

// A step of which parts are left out because its orders would be too large.
struct FittedStep {
  StepPlan plan;
  std::vector<NewSequence> added;
  std::vector<FailedSequence> left_out;  // they have no part in it, and nodes are not told of them
};

// Leaves out the sequences that start, and if orders do not fit without them either, all work. The
// scheduler bounds what starts in one step, so what starts is too large by itself.
FittedStep FitOrders(
    const StepPlan& plan, std::span<const NewSequence> added,
    const std::function<bool(const StepPlan&, std::span<const NewSequence>)>& fits);

// The shape of a model's attention as nodes are told it.
AttentionSpec MakeAttentionSpec(const ModelConfig& model, DType kv_dtype, DType wire_dtype);

}  // namespace lamina
