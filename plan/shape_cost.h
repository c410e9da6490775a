// How long a step takes in a cluster that nobody has built, from the cost model (cost/cost_model.h,
// cost/network_cost.h).
//
// With n batches of b rows in flight on c replicas, a round (scheduler/round.h) is the time in
// which every sequence gets one token. It takes the longest of
//
//   a batch's own way   its linear layers + attention + network + the prompts of all batches,
//                       for which it waits at the compute node, and its all-reduces of prompts
//   compute nodes       the linear layers of n / c steps (ceil(n / c) if batches do not rotate),
//                       and the prompts of all batches
//   memory nodes        the attention of n steps, shared evenly
//   NICs                q, k and v, or outputs, of n steps, whichever direction has more; K and
//                       V of prompts; contexts that rotate; copies of all-reduces
//
// A homogeneous cluster has one batch, and a round is linear layers + attention + prompts. Prompts
// are paid as steps of their own, though they share steps with decoding rows. Launches, hosts and
// schedulers cost nothing, as with modelled devices; nothing of the network is hidden by overlap
// within a batch.
//
// All-reduces of r ranks: lamina's (compute_node/all_reduce.h) send r - 1 copies of each value over
// the NIC and wait for its latency, while the compute node runs other batches; that counts as
// network. The ranks of a homogeneous cluster, which is not lamina's, send 2 (r - 1) / r of it in a
// ring over the devices' interconnect, or over the NIC and with its latency if the catalog names no
// interconnect; nothing else runs meanwhile, so that it counts with the linear layers.
//
// As many sequences run as the KV cache of a memory node, or of a homogeneous cluster, holds at
// their mean context and three standard deviations of the sum.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cost/device_catalog.h"
#include "cost/network_cost.h"
#include "plan/cluster_shape.h"
#include "plan/plan_load.h"
#include "splitter/slices.h"

namespace lamina {

// Rows of prompts that a step computes: the default of max_num_batched_tokens in a cluster file.
inline constexpr int64_t kPrefillRows = 512;

// What the catalog and the workload leave open.
struct PlanOptions {
  double latency_us = 33;  // from node to node
  // Bandwidth of a device's NIC where the catalog gives none.
  double default_nic_gb_per_s = 25;
  // Share of a device's memory for the KV cache, together with the weights if both are on it.
  double memory_utilization = 0.9;
  // Compute nodes compute the prompts. false: KV caches of prompts come from elsewhere.
  bool prefill = true;
  double tpot_seconds = 0;        // at most; 0: any
  double ttft_seconds = 0;        // at most; 0: any
  int64_t max_sequences = 65536;  // at a time
  // Prices are those to buy, spread over `years`. false: prices to rent.
  bool bought = false;
  double years = 3;
  // Every shape has the all-reduces of a homogeneous cluster, to compare with a system that has
  // such.
  bool ring_all_reduces = false;
};

// The price of one device for an hour, in dollars; 0 if the catalog has none.
double HourlyPrice(const DeviceSpec& device, const PlanOptions& options);

// The NIC of one device, in each direction.
double NicGbPerS(const DeviceSpec& device, const PlanOptions& options);

// Factors for resources. To find out what limits a shape, one of them is doubled, all else equal.
struct Scale {
  double compute = 1, weight_bandwidth = 1, kv_bandwidth = 1, kv_capacity = 1, network = 1, slo = 1;
};

// What one of num_ranks ranks runs of a model. All ranks run as much; this is rank 0.
struct RankModel {
  // kInvalidArgument if the model cannot be split among so many ranks, kUnimplemented if there is
  // no graph of it.
  static Result<RankModel> Create(const ModelConfig& config, int num_ranks);

  // A run of `count` consecutive slices that do the same amount of work, from `slice` on.
  struct Group {
    int slice = 0, count = 0;
  };

  ModelConfig config;  // of the whole model
  int num_ranks = 1;
  SlicedModel sliced;
  AttentionHeads heads;  // of the rank
  // Number of layers by the window of their attention.
  std::map<AttentionWindow, int> windows;
  std::vector<Group> groups;       // all slices but the last
  int num_all_reduces = 0;         // in a step
  double all_reduce_elements = 0;  // of one row, in all of them
  int64_t weight_bytes = 0;        // of the rank
};

// The attention of one step in all layers, on one device that has `rows` rows of it with `context`
// tokens each.
double StepAttentionSeconds(const DeviceSpec& device, const AttentionHeads& heads,
                            const std::map<AttentionWindow, int>& windows, double rows,
                            double context);

// A rank's model on one kind of device: what the linear layers, prompts and all-reduces take.
// Remembers the times of linear layers for each number of rows. Borrows the model. Thread: one.
class ComputeSide {
 public:
  // kOutOfSpace if the weights do not fit; kInvalidArgument if the device's profile is of layers of
  // another shape and cannot be converted to the model's.
  static Result<ComputeSide> Create(const DeviceSpec& device, const RankModel& model,
                                    const PlanOptions& options, const Scale& scale = {});

  // Linear layers of one step, without all-reduces.
  double LinearSeconds(int64_t rows);
  // Linear layers and attention of one mean prompt, alone on a replica, without all-reduces.
  double PrefillSeconds(const PlanLoad& load);

  // All-reduces of one step as a ring over the interconnect.
  double RingSeconds(double rows) const;
  // All-reduces of one prompt, as a ring.
  double RingSeconds(const PlanLoad& load) const {
    return StepsOf(load) * RingSeconds(kPrefillRows);
  }
  // All-reduces of one step with r - 1 copies over the NIC.
  double CopySeconds(double rows) const;
  // All-reduces of one prompt, as copies.
  double CopySeconds(const PlanLoad& load) const {
    return StepsOf(load) * CopySeconds(kPrefillRows);
  }
  // What one row's copies take of the NIC in each direction, latency aside.
  double CopySecondsOfRow() const;

  const DeviceSpec& device() const { return device_; }
  const RankModel& model() const { return *model_; }
  const Scale& scale() const { return scale_; }
  // Memory of one rank that the KV cache can have beside the weights.
  double free_bytes() const { return free_bytes_; }

 private:
  ComputeSide(const DeviceSpec& device, const RankModel& model, const Scale& scale)
      : device_(device), model_(&model), scale_(scale) {}
  // Steps that one prompt takes.
  static double StepsOf(const PlanLoad& load) {
    return load.input_tokens / static_cast<double>(kPrefillRows);
  }

  DeviceSpec device_;
  const RankModel* model_;
  Scale scale_;
  // What times of the device's profile are divided by. A measured time is not told apart into
  // operations and bytes, so that either resource's factor shortens it as a whole.
  double measured_scale_ = 1;
  Link ring_, nic_;  // what all-reduces are sent over
  double free_bytes_ = 0;
  std::map<int64_t, double> linear_seconds_;
};

// One shape with its devices, for one workload. Thread: one.
class ShapeCost {
 public:
  // `memory` is null for a homogeneous shape. Everything is scaled as the compute side is. Borrows
  // the compute side, the load and the options.
  ShapeCost(const ClusterShape& shape, ComputeSide& compute, const DeviceSpec* memory,
            const PlanLoad& load, const PlanOptions& options);

  // Sequences that the KV cache holds and the options allow. 0: not even the longest request fits.
  int64_t max_sequences() const { return max_sequences_; }
  // The pipelines that are tried, as schedules whose `rows` is not set.
  std::vector<Schedule> Pipelines() const;
  // One token for every sequence.
  double RoundSeconds(const Schedule& schedule) const;
  double TokensPerSecond(const Schedule& schedule) const {
    return static_cast<double>(schedule.sequences()) / RoundSeconds(schedule);
  }

  // The schedule with the most tokens/s that keeps the limits of time and memory; of those within
  // 0.5 % of it the one with the fewest sequences. Without rows if no schedule keeps the limits.
  Schedule Best() const;
  // The same among schedules with that many batches that rotate, or do not, as `pipeline` does.
  Schedule BestOf(const Schedule& pipeline) const;
  // The schedule with the fewest sequences that gives at least so many tokens/s. Without rows if
  // none does.
  Schedule Fewest(double tokens_per_second) const;

  // What the schedule gives. The caller fills in limit, copies and prices and, with a rate, tokens
  // per second, admitted_sequences and most_tokens_per_second.
  Prediction Describe(const Schedule& schedule) const;

 private:
  struct Parts;
  Parts PartsOf(const Schedule& schedule) const;
  std::vector<Schedule> Candidates() const;
  Schedule Fewest(const std::vector<Schedule>& candidates, double tokens_per_second) const;
  Schedule Best(const std::vector<Schedule>& candidates) const;
  bool Keeps(const Schedule& schedule) const;

  const ClusterShape shape_;
  ComputeSide& compute_;
  // The device that runs attention, scaled.
  DeviceSpec attention_;
  const PlanLoad& load_;
  const PlanOptions& options_;
  // K and V of one token in all layers.
  double kv_bytes_ = 0;
  // What one row sends and gets in all layers.
  RowBytes row_bytes_;
  // What goes from slice to slice for one row, in all layers.
  double context_bytes_ = 0;
  // All-reduces are rings over the interconnect, else copies over the NIC.
  bool rings_ = false;
  // One mean prompt on a replica.
  double prompt_seconds_ = 0;
  // One mean prompt's all-reduces over the NIC.
  double prompt_copy_seconds_ = 0;
  // NICs of the compute nodes of one replica, and of all memory nodes, in bytes/s.
  double compute_nic_ = 0, memory_nics_ = 0;
  int64_t max_sequences_ = 0;
};

}  // namespace lamina
