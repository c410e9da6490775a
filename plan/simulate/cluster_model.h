// A cluster file as the simulator sees it: which devices hold what, and which bytes go where. No
// daemon of it runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "cost/device_catalog.h"
#include "manager/cluster_config.h"
#include "model/model_config.h"
#include "plan/simulate/kv_baseline.h"
#include "scheduler/scheduler.h"
#include "splitter/model_share.h"
#include "splitter/placement.h"
#include "splitter/slices.h"
#include "splitter/topology.h"
#include "wire/wire_format.h"

namespace lamina {

// What is asked for on the command line in place of what the cluster file says. The defaults change
// nothing.
struct ClusterChanges {
  // The number of memory nodes: the file's, in turn, as often as needed.
  int num_memory_nodes = 0;
  // The number of compute nodes: copies of the file's first one.
  int num_compute_nodes = 0;
  int num_batches = 0;
  int max_num_seqs = 0, max_num_batched_tokens = 0;
  std::optional<PipelineMode> pipeline;
  std::optional<Switch> overlap;
  std::optional<QueueMode> queue;
  std::optional<HopelessMode> on_hopeless;
  std::string latency;
  double gb_per_s = -1;
  // The device of the catalog that nodes whose device is cpu are taken for.
  std::string cpu_device;
  // The catalog in place of the file's.
  std::string device_catalog;
  // In place of kv_offload, which the file then must not have.
  KvBaseline kv_baseline;
  // New K and V are also written to the host's memory at once, so that a layer that goes need not
  // be copied. Only the simulator can do that yet.
  bool kv_write_through = false;
};

// One memory node.
struct MemoryNodeModel {
  std::string name;
  NodeId id;
  // Index into ClusterModel::kv_nodes: of its group.
  size_t group = 0;
  // Of the compute nodes that it works for (tensor parallelism).
  int rank = 0;
  const DeviceSpec* device = nullptr;
  AttentionHeads heads;  // that it holds
  WireShape wire;
};

// One compute node, or with tensor parallelism all ranks of a stage: they run a slice together, as
// one. The name then is those of all ranks, "c0+c1"; id and device are the first rank's.
struct ComputeNodeModel {
  std::string name;
  NodeId id;
  const DeviceSpec* device = nullptr;
  OffloadOptions offload = {}, kv_offload = {};
  SliceRange slices;  // that may run here
};

// The whole cluster. Immutable once loaded; movable, as the devices that it points to are on the
// heap.
struct ClusterModel {
  ClusterConfig config;  // resolved: no value is "auto"
  KvBaseline kv_baseline;
  bool kv_write_through = false;
  ModelConfig model;
  SlicedModel sliced;    // of one rank
  AttentionHeads heads;  // of one rank
  // The first slice of each stage, and the number of slices behind them.
  std::vector<int> first_slices;
  DType kv_dtype = DType::kBF16, wire_dtype = DType::kBF16;
  // The windows of the model's attentions, each once.
  std::vector<AttentionWindow> windows;
  std::vector<size_t> window_of_layer;  // [layers] index into windows

  std::vector<ComputeNodeModel> compute;
  std::vector<MemoryNodeModel> memory;
  // What the scheduler places sequences on: groups of memory nodes; without any, the compute node.
  std::vector<KvNode> kv_nodes;
  // [kv_nodes] Indices into memory; none of a compute node.
  std::vector<std::vector<size_t>> of_group;
  // Owns what the `device` pointers point to.
  std::vector<std::unique_ptr<const DeviceSpec>> devices;

  // Which of the compute nodes that are left run slices. The ranks of a stage count as one node, as
  // in `compute`. REQUIRES: num_left >= 1; all are left if they share the model.
  Placement PlacementAmong(int num_left) const;

  // Reads the cluster file, the model and the catalog. kNotFound names a file or a device that is
  // missing. kInvalidArgument names the file and what is wrong in it or in what the changes make of
  // it. kOutOfSpace if a memory node has no room for one token. kUnimplemented for a model that
  // lamina does not know.
  static Result<ClusterModel> Load(const std::string& path, const ClusterChanges& changes);

  // The same of a config that was read before. Errors do not name its file.
  static Result<ClusterModel> Of(ClusterConfig config, const ClusterChanges& changes);
};

}  // namespace lamina
