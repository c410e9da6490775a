// A cluster file as the simulator sees it: which devices hold what, and which bytes go where.
// Nothing of it runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "cost/device_catalog.h"
#include "manager/cluster_config.h"
#include "model/model_config.h"
#include "scheduler/scheduler.h"
#include "splitter/slices.h"
#include "wire/wire_format.h"

namespace lamina {

// What is asked for instead of what the cluster file says. The defaults change nothing.
struct ClusterChanges {
  int num_memory_nodes = 0;   // the file's, over and over
  int num_compute_nodes = 0;  // copies of the file's first one
  int num_batches = 0;
  int max_num_seqs = 0, max_num_batched_tokens = 0;
  std::string pipeline, overlap, latency;
  double gb_per_s = -1;
  std::string cpu_device;      // of the catalog: what nodes whose device is cpu are taken for
  std::string device_catalog;  // instead of the file's
};

struct MemoryNodeModel {
  std::string name;
  NodeId id;
  size_t group = 0;  // index of the KvNode that it is part of
  int rank = 0;      // of the compute node that it works for
  const DeviceSpec* device = nullptr;
  AttentionHeads heads;  // that it holds
  WireShape wire;        // with these
};

struct ComputeNodeModel {
  std::string name;  // with tensor parallelism all ranks' names: they run a slice together, as one
  NodeId id;
  const DeviceSpec* device = nullptr;  // of the first rank
};

struct ClusterModel {
  ClusterConfig config;  // resolved
  ModelConfig model;
  SlicedModel sliced;             // of one rank
  AttentionHeads heads;           // of one rank
  std::vector<int> first_slices;  // of each stage, and the number of slices behind them
  DType kv_dtype = DType::kBF16, wire_dtype = DType::kBF16;
  std::vector<int64_t> windows;  // of attention, each once; 0: all tokens
  std::vector<size_t> window_of_layer;

  std::vector<ComputeNodeModel> compute;
  std::vector<MemoryNodeModel> memory;
  std::vector<KvNode> kv_nodes;                            // as the scheduler places sequences
  std::vector<std::vector<size_t>> of_group;               // [kv_nodes] indices into memory
  std::vector<std::unique_ptr<const DeviceSpec>> devices;  // what the pointers above point to

  // Of the compute nodes, that which runs slice k of a batch.
  int NodeOf(int batch, int slice, bool rotates, int num_left) const;

  // kInvalidArgument names the file and what is wrong; else as ClusterConfig::Load,
  // ModelConfig::Load and the catalog.
  static Result<ClusterModel> Load(const std::string& path, const ClusterChanges& changes);
};

}  // namespace lamina
