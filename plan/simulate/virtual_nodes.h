// The compute and memory nodes in virtual time: take a step's plan, and say when its result is at
// the manager.
//
// The order of events is that of compute_node/step_runner.h and memory_node/memory_node.h with
// modelled devices. A compute node does one thing at a time: the next slice of a batch whose
// attention is complete, in turn; it then posts q, k and v to the memory nodes one after another,
// and attends for prompts itself. A memory node attends for one message at a time, in their order.
// With overlap q goes ahead, and three of four rows are attended to before k and v are there.
//
// Where it is not the runtime to the nanosecond:
// - messages of several compute nodes to one memory node are served in the order in which they were
// posted, not in that in which they came
// - pushed K and V of prompts wait for a memory node that attends, but nobody waits for a push that
// is stored
// - a row of a spread sequence with a sliding window reads at most the window of each node's part,
// wherever these tokens stand
// - what was under way with a memory node that fails is answered as if it had lived until the end
// of that layer
// - ranks of a stage (tensor parallelism) run in step, and a sum takes a latency and the bytes that
// a rank sends
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "manager/attention_speed.h"
#include "plan/simulate/cluster_model.h"
#include "plan/simulate/event_queue.h"
#include "plan/simulate/host_costs.h"
#include "plan/simulate/slice_times.h"
#include "plan/simulate/usage.h"
#include "plan/simulate/virtual_nic.h"
#include "scheduler/pipeline.h"
#include "scheduler/scheduler.h"

namespace lamina {

// Thread: one owner. Borrows everything.
class VirtualNodes {
 public:
  // `prompts_appear`: prefill work takes no time (StepPlan::dummy_prefill).
  VirtualNodes(const ClusterModel& cluster, const HostCosts& host, bool prompts_appear,
               EventQueue& events, UsageTimeline& usage);

  // The plan's orders are at the compute nodes at `at`. One kResult follows, if no compute node is
  // lost.
  void Submit(const StepPlan& plan, TimePoint at);

  // kOrder, kAdvance, kQueries or kRows.
  void Handle(const VirtualEvent& event);

  // Of the step of `batch` that was completed last.
  const StepCost& cost(int batch) const { return batches_[static_cast<size_t>(batch)].cost; }

  // From now on it takes `factor` times as long. REQUIRES: factor > 0.
  void SlowCompute(size_t node, double factor) { compute_[node].slow = factor; }
  void SlowMemory(size_t node, double factor) { memory_[node].slow = factor; }

  // All memory nodes that hold the same tokens.
  void LoseGroup(size_t group);
  // What is under way will have no result.
  void LoseCompute(size_t node);
  int num_compute_left() const { return static_cast<int>(left_.size()); }

  // As the manager learns of them now and then: relative to the fastest, of those that are not
  // lost, by the scheduler's node. Empty until all are known.
  std::vector<std::pair<NodeId, double>> MeasureSpeeds();

  double compute_busy_s(size_t node) const { return compute_[node].busy_s; }
  double memory_busy_s(size_t node) const { return memory_[node].busy_s; }
  // Of the busier direction of a compute node's NIC.
  double network_busy_s(size_t node) const { return compute_[node].network_s; }
  uint64_t generation() const { return generation_; }

 private:
  // Attention of one layer on one memory node.
  struct AttentionTimes {
    Clock::duration whole{};  // without overlap
    Clock::duration first{};  // with it: what is stored, of the rows that begin without k and v
    Clock::duration more{};   // their new tokens
    Clock::duration rest{};   // the other rows
    int64_t tokens = 0;       // attended to
  };
  struct Asked {
    size_t memory = 0;
    int64_t rows = 0, stores = 0, begun = 0;
    bool wants_lse = false;
  };
  struct Pushed {
    size_t memory = 0;
    int64_t tokens = 0;
  };
  struct Batch {
    bool under_way = false, rotates = false;
    uint64_t generation = 0;
    int64_t rows = 0, prefill_rows = 0, sampled = 0;
    std::vector<Asked> asked;
    std::vector<AttentionTimes> attention;  // [windows][asked]
    std::vector<Pushed> pushed;
    std::vector<Clock::duration> prefill;  // [windows] on the compute node
    int slice = 0;
    size_t part = 0;
    int node = 0;  // that runs it
    TimePoint ready_at = kNever, pushes_done;
    StepCost cost;
  };
  struct Compute {
    const ComputeNodeModel* model = nullptr;
    SliceTimes* times = nullptr;
    DeviceTimeline device;
    std::vector<VirtualNic> nics;  // of each rank
    TimePoint busy_until;
    int last = 0;  // batch
    double slow = 1;
    double busy_s = 0, network_s = 0;
    // [memory] when they are stored; empty: there was none.
    std::vector<std::array<TimePoint, kPushSlots>> pushes;
  };
  struct Memory {
    const MemoryNodeModel* model = nullptr;
    DeviceTimeline device;
    VirtualNic nic;
    double slow = 1;
    bool lost = false;
    double busy_s = 0;
    control::Stats stats;
    AttentionSpeed speed;
    double attention_us = 0;
    int64_t messages = 0, tokens = 0;
  };
  struct Row {
    int64_t before = 0, tokens = 0;  // on the node: without and with those of this step
    bool stores = false, wants_lse = false;
  };

  void CollectRows(const StepPlan& plan, Batch& batch);
  void AddAsked(size_t memory, const std::vector<Row>& rows, Batch& batch);
  void AddPrefill(const StepPlan& plan, Batch& batch);
  AttentionTimes TimesOf(const MemoryNodeModel& memory, const std::vector<Row>& rows,
                         int64_t window) const;
  void Advance(int node, TimePoint now);
  void RunPart(int number, TimePoint now);
  void EndStep(int number, TimePoint at);
  void PostQueries(int number, TimePoint now);
  void PostRows(int number, TimePoint now);
  TimePoint Ask(const Asked& asked, const AttentionTimes& times, Compute& from, Compute& to,
                TimePoint now);
  TimePoint Push(Batch& batch, Compute& from, TimePoint now);
  TimePoint AddUp(Compute& node, int64_t bytes, TimePoint now);
  TimePoint Attend(Memory& memory, TimePoint ready, Clock::duration time, int64_t rows);
  // Of a message to each of its memory nodes.
  Clock::duration PostingTime(const Batch& batch) const;
  int PlaceOf(int number, int slice) const;  // index into compute_
  // Index into the cluster's windows, of the attention between slice - 1 and slice.
  size_t WindowBefore(int slice) const;

  const ClusterModel& cluster_;
  const HostCosts host_;
  const bool prompts_appear_;
  EventQueue& events_;
  UsageTimeline& usage_;
  VirtualLink link_;
  bool overlap_ = false;
  uint64_t generation_ = 1;
  std::vector<std::pair<const DeviceSpec*, std::unique_ptr<SliceTimes>>> slice_times_;
  std::vector<Compute> compute_;
  std::vector<int> left_;  // compute nodes
  std::vector<Memory> memory_;
  std::vector<size_t> group_of_;  // [node id]
  std::vector<Batch> batches_;
  std::vector<std::vector<Row>> rows_of_group_;  // scratch
  std::vector<size_t> groups_;                   // likewise: those with rows
};

}  // namespace lamina
