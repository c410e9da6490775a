// How long a step of a cluster takes that nobody has built, from the cost model (cost/cost_model.h,
// cost/network_cost.h).
//
// With n batches of b rows in flight on c replicas a round, in which every sequence gets one token,
// takes the longest of
//   a step's own way    linear layers + attention + network + all batches' prompts, for which it
//   waits at the compute node, and the
//                       all-reduces of its own batch's
//   compute nodes       n / c steps' linear layers (ceil(n / c) if batches do not rotate), and the
//   prompts of all of them memory nodes        n steps' attention, shared evenly NICs n steps' q,
//   k, v or outputs, whichever direction has more, prompts' K and V, contexts that rotate, and
//   copies
// A homogeneous cluster has one batch, and a step is linear layers + attention + prompts. Prompts
// are paid as steps of their own, though they share steps with decoding rows. Launches, hosts and
// schedulers cost nothing, as in modelled devices; nothing of the network is hidden by overlap.
//
// All-reduces of r ranks: lamina's (compute_node/all_reduce.h) send r - 1 copies of each value over
// the NIC and wait for its latency, while the compute node runs other batches; that is network.
// Ranks of a homogeneous cluster, which is not lamina's, send 2 (r - 1) / r of it over the devices'
// interconnect, or over the NIC and with its latency if the catalog gives none; nothing else runs
// in the meantime, so that this counts with the linear layers.
//
// So many sequences run that the KV cache of a memory node, or of a homogeneous cluster, holds
// their mean context and three standard deviations.
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

// Of prompts that a step computes; the default of limits: max_num_batched_tokens.
inline constexpr int64_t kPrefillRows = 512;

struct PlanOptions {
  double latency_us = 33;            // from node to node
  double default_nic_gb_per_s = 25;  // of devices whose NIC the catalog does not know
  // Share of a device's memory for the KV cache, and the weights if they are there too.
  double memory_utilization = 0.9;
  // Share for weights where there is no KV cache: the rest is for activations.
  double weight_utilization = 0.95;
  // Prompts are computed here; false: their KV cache comes from elsewhere.
  bool prefill = true;
  double tpot_seconds = 0;        // at most; 0: any
  double ttft_seconds = 0;        // likewise
  int64_t max_sequences = 65536;  // at a time
  bool bought = false;            // prices to buy, spread over the years; else to rent
  double years = 3;
  // Those of a homogeneous cluster in every shape: of a system that has them.
  bool ring_all_reduces = false;
};

// The price of one device for an hour; 0: unknown.
double HourlyPrice(const DeviceSpec& device, const PlanOptions& options);

// Of one device, in each direction.
double NicGbPerS(const DeviceSpec& device, const PlanOptions& options);

// What is scaled to find out what limits a shape: twice the resource, all else equal.
struct Scale {
  double compute = 1, weight_bandwidth = 1, kv_bandwidth = 1, kv_capacity = 1, network = 1, slo = 1;
};

// What one of some ranks runs of a model.
struct RankModel {
  // kInvalidArgument: it cannot be split among so many.
  static Result<RankModel> Create(const ModelConfig& config, int num_ranks);

  struct Group {
    int slice = 0, count = 0;  // slices that are alike
  };

  ModelConfig config;  // of the whole model
  int num_ranks = 1;
  SlicedModel sliced;
  AttentionHeads heads;            // of the rank
  std::map<int64_t, int> windows;  // layers by their window; 0: none
  std::vector<Group> groups;       // all but the last slice
  int num_all_reduces = 0;         // in a step
  double all_reduce_elements = 0;  // of a row in all of them
  int64_t weight_bytes = 0;
};

// Attention of one step in all layers on one device.
double StepAttentionSeconds(const DeviceSpec& device, const AttentionHeads& heads,
                            const std::map<int64_t, int>& windows, double rows, double context);

// A rank's model on one kind of device. Remembers what linear layers take for each number of rows.
// Borrows the model.
class ComputeSide {
 public:
  // kOutOfSpace: the weights do not fit. kInvalidArgument: as FitProfile.
  static Result<ComputeSide> Create(const DeviceSpec& device, const RankModel& model,
                                    const PlanOptions& options, const Scale& scale = {});

  // Without all-reduces.
  double LinearSeconds(int64_t rows);           // of a step
  double PrefillSeconds(const PlanLoad& load);  // of one prompt, alone on a replica

  // All-reduces of one step, or of one prompt.
  double RingSeconds(double rows) const;  // over the interconnect
  double RingSeconds(const PlanLoad& load) const {
    return StepsOf(load) * RingSeconds(kPrefillRows);
  }
  double CopySeconds(double rows) const;  // r - 1 copies over the NIC
  double CopySeconds(const PlanLoad& load) const {
    return StepsOf(load) * CopySeconds(kPrefillRows);
  }
  double CopySecondsOfRow() const;  // of the NIC in each direction, latency aside

  const DeviceSpec& device() const { return device_; }
  const RankModel& model() const { return *model_; }
  double free_bytes() const { return free_bytes_; }  // of one rank, beside the weights

 private:
  ComputeSide(const DeviceSpec& device, const RankModel& model) : device_(device), model_(&model) {}
  // Of one prompt.
  static double StepsOf(const PlanLoad& load) {
    return load.input_tokens / static_cast<double>(kPrefillRows);
  }

  DeviceSpec device_;
  const RankModel* model_;
  // Of times that were measured, which are not told apart into operations and bytes.
  double measured_scale_ = 1;
  Link ring_, nic_;  // that all-reduces take
  double free_bytes_ = 0;
  std::map<int64_t, double> linear_seconds_;
};

// One shape with its devices. Thread: one.
class ShapeCost {
 public:
  // `memory`: null for a homogeneous shape. Borrows the compute side, load and options.
  ShapeCost(const ClusterShape& shape, ComputeSide& compute, const DeviceSpec* memory,
            const PlanLoad& load, const PlanOptions& options, const Scale& scale = {});

  // That the KV cache holds; 0: not even one, or not the longest request.
  int64_t max_sequences() const { return max_sequences_; }
  std::vector<Schedule> Pipelines() const;  // without rows
  double RoundSeconds(const Schedule& schedule) const;
  double TokensPerSecond(const Schedule& schedule) const {
    return static_cast<double>(schedule.sequences()) / RoundSeconds(schedule);
  }

  // The schedule with the most tokens/s that keeps the limits; of those within 0.5 % the one with
  // the fewest sequences. Without rows if none keeps them.
  Schedule Best() const;
  // Likewise, with as many batches that rotate or not.
  Schedule BestOf(const Schedule& pipeline) const;
  // The fewest sequences that give so many tokens/s; Best() if none does.
  Schedule Fewest(double tokens_per_second) const;

  // Everything but limit, copies, price and, with a rate, what is admitted and the most.
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
  DeviceSpec attention_;  // what runs attention
  const PlanLoad& load_;
  const PlanOptions& options_;
  const Scale scale_;
  double kv_bytes_ = 0;             // of a token
  RowBytes row_bytes_;              // of a row in all layers
  double context_bytes_ = 0;        // likewise, of what goes from slice to slice
  bool rings_ = false;              // all-reduces
  double prompt_seconds_ = 0;       // of one, on a replica
  double prompt_copy_seconds_ = 0;  // of one prompt's all-reduces over the NIC
  // bytes/s of a replica's compute nodes, of all memory nodes.
  double compute_nic_ = 0, memory_nics_ = 0;
  int64_t max_sequences_ = 0;
};

}  // namespace lamina
