// The compute and memory nodes in virtual time: they take a step's plan, and say when its result is
// at the manager.
//
// The order of events is that of compute_node/step_runner.h and memory_node/memory_node.h with
// modelled devices. A compute node does one thing at a time: the next slice of a batch whose
// attention is complete, in turn; it then posts q, k and v to the memory nodes one after another,
// and computes the attention of prompts itself. A memory node attends for one message at a time, in
// their order. With overlap q goes ahead, and three of four rows are attended to before k and v are
// there.
//
// Without memory nodes the compute node computes all attention itself, behind each slice.
//
// Where it is not the runtime to the nanosecond:
//
// - Messages of several compute nodes to one memory node are served in the order in which they
//   were posted, not in that in which they came.
// - Pushed K and V of prompts wait for a memory node that attends, but nothing waits for a push
//   that is being stored.
// - A row of a spread sequence with a window reads at most the window of each node's part,
//   wherever those tokens stand.
// - What was under way with a memory node that fails is answered as if the node had lived until
//   the end of that layer.
// - The ranks of a stage (tensor parallelism) run in step, and an all-reduce takes a latency and
//   the bytes that a rank sends.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "manager/attention_speed.h"
#include "plan/simulate/cluster_model.h"
#include "plan/simulate/event_queue.h"
#include "plan/simulate/host_costs.h"
#include "plan/simulate/kv_baseline.h"
#include "plan/simulate/slice_times.h"
#include "plan/simulate/usage.h"
#include "plan/simulate/virtual_nic.h"
#include "plan/simulate/virtual_ring.h"
#include "scheduler/pipeline.h"
#include "scheduler/scheduler.h"
#include "splitter/placement.h"

namespace lamina {

// All nodes of a cluster. Puts events into the queue and has them handed back by Handle when their
// time comes. Thread: owner. Borrows the cluster, the queue and the usage.
class VirtualNodes {
 public:
  // With `prompts_appear` prefill work takes no time (StepPlan::dummy_prefill).
  VirtualNodes(const ClusterModel& cluster, const HostCosts& host, bool prompts_appear,
               EventQueue& events, UsageTimeline& usage);

  // The plan's orders arrive at the compute nodes at `at`. One kResult of the plan's batch follows,
  // unless a compute node is lost before.
  void Submit(const StepPlan& plan, TimePoint at);

  // REQUIRES: a kOrder, kAdvance, kQueries or kRows.
  void Handle(const VirtualEvent& event);

  // What the step of `batch` that was completed last took.
  const StepCost& cost(int batch) const { return batches_[static_cast<size_t>(batch)].cost; }

  // From now on all that the node does takes `factor` times as long as at first. REQUIRES: factor >
  // 0.
  void SlowCompute(size_t node, double factor) { compute_[node].slow = factor; }
  void SlowMemory(size_t node, double factor) { memory_[node].slow = factor; }
  // The same of copies between a compute node and its host's memory, as far as they begin later.
  void SlowLink(size_t node, double factor);

  // All memory nodes that hold the same tokens are lost, as a sequence needs every one of them.
  void LoseGroup(size_t group);
  // The node is lost, and no step that is under way will have a result. `replaced`: another one of
  // the same kind has its place from then on.
  void LoseCompute(size_t node, bool replaced);
  int largest_interval() const;  // as StepExecutor's
  // By the scheduler's node, of KV caches whose number of layers in memory changes: what they have
  // room for, and how they are.
  std::map<NodeId, ElasticKv> elastic_kv() const;
  std::map<NodeId, LayersInside> layers_inside() const;
  int num_compute_left() const { return static_cast<int>(left_.size()); }

  // The speeds of attention as the manager learns them now and then: by the scheduler's node,
  // relative to the fastest, without lost nodes. Empty if nothing is new, or until all are known.
  std::vector<std::pair<NodeId, double>> MeasureSpeeds();

  double compute_busy_s(size_t node) const { return compute_[node].busy_s; }
  double memory_busy_s(size_t node) const { return memory_[node].busy_s; }
  // Time that the node's NIC has been sending q, k, v and pushed prompts: the busier of its
  // directions.
  double network_busy_s(size_t node) const { return compute_[node].network_s; }
  // The generation of events that are still to happen; grows when a compute node is lost.
  uint64_t generation() const { return generation_; }

 private:
  // What one layer's attention of a step takes on one memory node.
  struct AttentionTimes {
    // All rows, without overlap.
    Clock::duration whole{};
    // With overlap: the stored tokens of the rows that begin before k and v are there.
    Clock::duration first{};
    // With overlap: the new tokens of those rows.
    Clock::duration more{};
    // With overlap: the other rows.
    Clock::duration rest{};
    int64_t tokens = 0;  // attended to
  };
  // What a batch asks of one memory node in each layer: so many rows, of which some store k and v
  // and some (`begun`) begin before k and v are there.
  struct Asked {
    size_t memory = 0;
    int64_t rows = 0, stores = 0, begun = 0;
    bool wants_lse = false;
  };
  // K and V of prompts that a batch pushes to one memory node in each layer.
  struct Pushed {
    size_t memory = 0;
    int64_t tokens = 0;
  };
  // The step of a batch that is under way, or the last one. It is at part `part` of slice `slice`
  // on compute node `node`, and goes on at `ready_at`.
  struct Batch {
    bool under_way = false, rotates = false;
    uint64_t generation = 0;
    int64_t rows = 0, prefill_rows = 0, sampled = 0;
    std::vector<Asked> asked;
    std::vector<AttentionTimes> attention;  // [windows][asked]
    std::vector<Pushed> pushed;
    // [windows] Attention of one layer on the compute node: for prompts, or all of it.
    std::vector<Clock::duration> own_attention;
    int slice = 0;
    size_t part = 0;
    int node = 0;
    TimePoint ready_at = kNever, pushes_done;  // pushes_done: all pushes so far are stored
    StepCost cost;
  };
  // A compute node. `busy_until` is for the host thread; `device` may be booked for longer.
  struct Compute {
    const ComputeNodeModel* model = nullptr;
    SliceTimes* times = nullptr;
    DeviceTimeline device;
    std::unique_ptr<VirtualRing> ring;  // null: all weights are in its memory
    // Null: so are all layers of the KV cache, if it has one.
    std::unique_ptr<VirtualRing> kv_ring;
    std::unique_ptr<KvBaselineNode> kv_baseline;          // null: none
    std::vector<std::shared_ptr<VirtualCopyLink>> links;  // of its rings
    std::shared_ptr<VirtualCopyLink> kv_out;              // of these, that layers go back over
    double link_slow = 1;
    std::vector<VirtualNic> nics;  // of each rank
    TimePoint busy_until;
    int last = 0;  // the batch that ran last
    double slow = 1;
    double busy_s = 0, network_s = 0;
    // [memory nodes] When each slot for a push is free again. Empty until the first push.
    std::vector<std::array<TimePoint, kPushSlots>> pushes;
  };
  // A memory node. The last fields are what it tells the manager of its attention.
  struct Memory {
    const MemoryNodeModel* model = nullptr;
    DeviceTimeline device;
    VirtualNic nic;
    double slow = 1;
    bool lost = false;
    double busy_s = 0;
    MemoryStats stats;
    AttentionSpeed speed;
    double attention_us = 0;
    int64_t messages = 0, tokens = 0;
  };
  // A decoding row on one memory node.
  struct Row {
    // Tokens on the node: before this step, and with those of this step.
    int64_t before = 0, tokens = 0;
    int64_t position = 0;  // in the sequence
    bool stores = false, wants_lse = false;
  };

  // That the weights of nodes with this bus come over.
  std::shared_ptr<VirtualCopyLink> LinkOf(const std::string& bus);
  void CollectRows(const StepPlan& plan, Batch& batch);
  void AddPrefill(const StepPlan& plan, Batch& batch);
  // A layer that goes takes what the step's tokens take, as all others are outside already.
  void WriteThrough(Compute& compute, int64_t num_tokens) const;
  // Of works for which `counts` is true.
  template <typename Counts>
  void AddOwnAttention(const StepPlan& plan, Batch& batch, Counts counts);
  AttentionTimes TimesOf(const MemoryNodeModel& memory, const std::vector<Row>& rows,
                         const AttentionWindow& window) const;
  // A step's way through its nodes. Each of these books devices and NICs, and pushes the event that
  // continues it.
  void Advance(int node, TimePoint now);
  void RunPart(int number, TimePoint now);
  void EndStep(int number, TimePoint at);
  void PostQueries(int number, TimePoint now);
  void PostRows(int number, TimePoint now);
  // These book one thing and return when it is complete: an answer of a memory node at the compute
  // node `to`; the last push posted; an all-reduce; one piece of attention.
  TimePoint Ask(const Asked& asked, const AttentionTimes& times, Compute& from, Compute& to,
                TimePoint now);
  TimePoint Push(Batch& batch, Compute& from, TimePoint now);
  TimePoint AddUp(Compute& node, int64_t bytes, TimePoint now);
  TimePoint Attend(Memory& memory, TimePoint ready, Clock::duration time, int64_t rows);
  // What the host takes to post one message to each memory node of the batch.
  Clock::duration PostingTime(const Batch& batch) const;
  int PlaceOf(int number, int slice) const;  // index into compute_
  // Index into the cluster's windows for the attention between slice - 1 and slice.
  size_t WindowBefore(int slice) const;

  const ClusterModel& cluster_;
  const HostCosts host_;
  const bool prompts_appear_;
  EventQueue& events_;
  UsageTimeline& usage_;
  VirtualLink link_;
  bool overlap_ = false;
  uint64_t generation_ = 1;
  // One for each kind of device.
  std::vector<std::pair<const DeviceSpec*, std::unique_ptr<SliceTimes>>> slice_times_;
  std::map<std::string, std::shared_ptr<VirtualCopyLink>> buses_;
  std::vector<Compute> compute_;
  std::vector<int> left_;  // compute nodes that are not lost, as indices into compute_
  Placement placement_;    // of slices among left_
  std::vector<Memory> memory_;
  // Of each memory node, or of the compute node that keeps KV: an index into the cluster's
  // kv_nodes.
  std::unordered_map<NodeId, size_t> group_of_;
  std::vector<Batch> batches_;
  // Scratch of CollectRows: the rows of each group, and the groups that have any.
  std::vector<std::vector<Row>> rows_of_group_;
  std::vector<size_t> groups_;
};

}  // namespace lamina
