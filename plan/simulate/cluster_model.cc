#include "plan/simulate/cluster_model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/units.h"
#include "cost/network_cost.h"
#include "cost/node_device.h"
#include "manager/resolve_config.h"
#include "plan/simulate/virtual_ring.h"
#include "splitter/model_share.h"
#include "splitter/tensor_parallel.h"

namespace lamina {
namespace {

// Replaces the nodes of a role by `count` nodes: the file's in turn, or copies of the first. They
// are named c0, c1, ... or m0, m1, ...
void Repeat(NodeRole role, int count, bool first_only, std::vector<NodeConfig>& nodes) {
  if (count == 0) return;
  std::vector<NodeConfig> of_role, others;
  for (const NodeConfig& node : nodes) (node.role == role ? of_role : others).push_back(node);
  if (of_role.empty()) return;
  std::vector<NodeConfig> repeated;
  for (int i = 0; i < count; ++i) {
    NodeConfig node = of_role[first_only ? 0 : static_cast<size_t>(i) % of_role.size()];
    node.name = (role == NodeRole::kCompute ? "c" : "m") + std::to_string(i);
    repeated.push_back(std::move(node));
  }
  nodes = std::move(others);
  nodes.insert(role == NodeRole::kCompute ? nodes.begin() : nodes.end(), repeated.begin(),
               repeated.end());
}

Status Change(const ClusterChanges& changes, ClusterConfig& config) {
  if ((changes.kv_baseline.any() || changes.kv_write_through) &&
      std::ranges::count(config.nodes, NodeRole::kMemory, &NodeConfig::role) > 0)
    return InvalidArgument(
        "--kv-baseline and --kv-write-through are for a compute node that keeps the KV itself, and "
        "there are memory nodes");
  if (changes.num_memory_nodes > 0 &&
      std::ranges::count(config.nodes, NodeRole::kMemory, &NodeConfig::role) == 0)
    return InvalidArgument("--memory-nodes: the file has none that could be repeated");
  Repeat(NodeRole::kCompute, changes.num_compute_nodes, /*first_only=*/true, config.nodes);
  Repeat(NodeRole::kMemory, changes.num_memory_nodes, /*first_only=*/false, config.nodes);
  if (changes.num_batches > 0) config.num_batches = changes.num_batches;
  if (changes.max_num_seqs > 0) {
    config.max_num_seqs = changes.max_num_seqs;
    // The file's value may be too small for that many sequences, which the user has not asked
    // about.
    config.max_num_batched_tokens = std::max(config.max_num_batched_tokens, changes.max_num_seqs);
  }
  if (changes.max_num_batched_tokens > 0)
    config.max_num_batched_tokens = changes.max_num_batched_tokens;
  if (changes.pipeline) config.pipeline = *changes.pipeline;
  if (changes.overlap) config.overlap = *changes.overlap;
  if (changes.queue) config.queue = *changes.queue;
  if (changes.on_hopeless) config.on_hopeless = *changes.on_hopeless;
  if (changes.gb_per_s >= 0) config.modelled_gb_per_s = changes.gb_per_s;
  if (!changes.device_catalog.empty()) config.device_catalog = changes.device_catalog;
  if (changes.latency.empty()) return OkStatus();
  const Result<Clock::duration> latency = ParseDuration(changes.latency);
  if (!latency.ok()) return latency.status().WithContext("--latency");
  config.modelled_latency = *latency;
  return OkStatus();
}

void FindWindows(ClusterModel& cluster) {
  for (int layer = 0; layer < cluster.model.num_layers; ++layer) {
    const AttentionWindow window = cluster.model.WindowOf(layer);
    const auto found = std::find(cluster.windows.begin(), cluster.windows.end(), window);
    cluster.window_of_layer.push_back(static_cast<size_t>(found - cluster.windows.begin()));
    if (found == cluster.windows.end()) cluster.windows.push_back(window);
  }
}

// Devices by role and name. A compute node's device has a profile of the model; a memory node's of
// the same name has not.
using Devices = std::map<std::pair<NodeRole, std::string>, const DeviceSpec*>;

Result<const DeviceSpec*> DeviceOf(const NodeConfig& node, const ClusterChanges& changes,
                                   ClusterModel& cluster, Devices& known) {
  std::string name = node.device;
  if (name == "cpu" && !changes.cpu_device.empty())
    name = std::string(kModelledPrefix) + changes.cpu_device;
  if (const auto found = known.find({node.role, name}); found != known.end()) return found->second;
  LAMINA_ASSIGN_OR_RETURN(std::optional<DeviceSpec> spec,
                          FindModelledDevice(name, cluster.config.device_catalog));
  if (!spec) {
    return InvalidArgument(
        "node '" + node.name + "' has device " + name + ", of which nothing is known; " +
        (name == "cpu" ? "say with --cpu-device which device of the catalog stands for it"
                       : "write modelled:NAME in its place, with a NAME of the device catalog"));
  }
  if (node.role == NodeRole::kCompute) {
    LAMINA_RETURN_IF_ERROR(FitProfile(*spec, cluster.model, spec->tensor_parallel));
    LAMINA_RETURN_IF_ERROR(CheckRanks(*spec, cluster.config.tensor_parallel_size));
  }
  cluster.devices.push_back(std::make_unique<const DeviceSpec>(std::move(*spec)));
  return known[{node.role, name}] = cluster.devices.back().get();
}

// Gives token slots to a memory node as its daemon does.
Status AddMemoryNode(const NodeConfig& node, const Member& member, const DeviceSpec* device,
                     ClusterModel& cluster) {
  const ClusterConfig& config = cluster.config;
  const int group_size = cluster.model.num_heads / cluster.model.num_kv_heads;
  MemoryNodeModel memory;
  memory.name = node.name;
  memory.id = member.id;
  memory.rank = member.rank;
  memory.device = device;
  memory.heads = {member.num_kv_heads * group_size, member.num_kv_heads, cluster.model.head_dim,
                  cluster.kv_dtype};
  memory.wire = {memory.heads.num_heads, memory.heads.num_kv_heads,    cluster.model.head_dim,
                 cluster.kv_dtype,       config.max_num_seqs,          config.num_batches,
                 cluster.wire_dtype,     config.overlap == Switch::kOn};
  if (node.offload.any()) {
    return Unimplemented("node '" + node.name +
                         "': layers of memory nodes that lie outside are not simulated yet");
  }
  const int64_t token_bytes =
      2 * int64_t{cluster.model.num_layers} * static_cast<int64_t>(memory.wire.kv_row_bytes());
  const int64_t capacity = std::min(node.memory_bytes, device->memory_bytes) / token_bytes;
  if (capacity < 1)
    return OutOfSpace("node '" + node.name + "': its memory is less than one token's KV");
  // The first node of a group stands for it in the scheduler.
  if (member.group == member.id) {
    cluster.kv_nodes.push_back({member.id, capacity});
    cluster.of_group.emplace_back();
  }
  KvNode& group = cluster.kv_nodes.back();
  // All nodes of a group hold the same tokens, so the smallest one limits them.
  group.capacity_tokens = std::min(group.capacity_tokens, capacity);
  memory.group = cluster.kv_nodes.size() - 1;
  cluster.of_group.back().push_back(cluster.memory.size());
  cluster.memory.push_back(std::move(memory));
  return OkStatus();
}

// Without memory nodes. REQUIRES: all compute nodes are added.
Status KeepKvOnComputeNode(ClusterModel& cluster) {
  const NodeConfig& node = cluster.config.nodes.front();
  if (cluster.config.nodes.size() > 1)
    return InvalidArgument("several compute nodes need memory nodes");
  const KvBaseline& baseline = cluster.kv_baseline;
  if (cluster.kv_write_through && node.kv_offload.expansion <= 1)
    return InvalidArgument("--kv-write-through is for layers that take turns: node '" + node.name +
                           "' needs kv_offload.expansion");
  if (baseline.any() && node.kv_offload.any())
    return InvalidArgument("--kv-baseline is in place of kv_offload, which node '" + node.name +
                           "' has");
  const int num_layers = cluster.model.num_layers;
  const int64_t layer_token_bytes = KvBytesPerToken(cluster.heads, 1);
  const DeviceSpec& device = *cluster.compute.front().device;
  const int64_t memory = std::min(node.memory_bytes, device.memory_bytes);
  LAMINA_ASSIGN_OR_RETURN(
      const int64_t capacity,
      baseline.any() ? baseline.TokensInMemory(num_layers, layer_token_bytes, memory)
                     : TokensInMemory(num_layers, layer_token_bytes, node.kv_offload, memory));
  if (capacity < 1)
    return OutOfSpace("node '" + node.name + "': its memory is less than one token's KV");
  cluster.kv_nodes.push_back({cluster.compute.front().id, capacity});
  KvNode& kv = cluster.kv_nodes.back();
  cluster.of_group.emplace_back();
  if (node.kv_offload.is_elastic()) {
    LAMINA_ASSIGN_OR_RETURN(const ElasticKv elastic,
                            ElasticKvOf(node.kv_offload, num_layers, capacity));
    kv.most_tokens = elastic.Tokens(elastic.least_inside);
  }
  if (baseline.any()) {
    return KvBaselineNode::Create(baseline, device, cluster.heads, num_layers, cluster.windows, 1)
        .status();
  }
  if (!node.kv_offload.any()) return OkStatus();
  return VirtualRing::CreateForKv(cluster, cluster.compute.front(), capacity).status();
}

Status AddNodes(const ClusterChanges& changes, ClusterModel& cluster) {
  LAMINA_ASSIGN_OR_RETURN(const View view, ViewOf(cluster.config, cluster.model));
  Devices known;
  for (size_t i = 0; i < cluster.config.nodes.size(); ++i) {
    const NodeConfig& node = cluster.config.nodes[i];
    const Member& member = view.members()[i];
    LAMINA_ASSIGN_OR_RETURN(const DeviceSpec* const device,
                            DeviceOf(node, changes, cluster, known));
    if (node.role == NodeRole::kMemory) {
      LAMINA_RETURN_IF_ERROR(AddMemoryNode(node, member, device, cluster));
    } else if (member.rank == 0) {
      const auto stage = static_cast<size_t>(member.stage);
      cluster.compute.push_back({node.name,
                                 member.id,
                                 device,
                                 node.offload,
                                 node.kv_offload,
                                 {cluster.first_slices[stage], cluster.first_slices[stage + 1]}});
      if (node.offload.any()) {
        const Status ring =
            VirtualRing::Create(cluster, cluster.compute.back(), std::make_shared<OwnLink>())
                .status();
        if (!ring.ok()) return ring.WithContext("node '" + node.name + "'");
      }
    } else {
      cluster.compute.back().name += "+" + node.name;
    }
  }
  return cluster.memory.empty() ? KeepKvOnComputeNode(cluster) : OkStatus();
}

Status Fill(const ClusterChanges& changes, ClusterModel& cluster) {
  LAMINA_RETURN_IF_ERROR(Change(changes, cluster.config));
  cluster.kv_baseline = changes.kv_baseline;
  cluster.kv_write_through = changes.kv_write_through;
  LAMINA_ASSIGN_OR_RETURN(cluster.model, cluster.config.LoadModel());
  // With CPU nodes "auto" is fp32 (ResolveConfig); their modelled stand-ins must not change that.
  if (!changes.cpu_device.empty() && !cluster.config.wire_dtype && !cluster.config.has_modelled())
    cluster.config.wire_dtype = DType::kF32;
  LAMINA_RETURN_IF_ERROR(ResolveConfig(cluster.config, cluster.model));
  const ClusterConfig& config = cluster.config;
  LAMINA_ASSIGN_OR_RETURN(const Graph whole, TraceModel(cluster.model));
  LAMINA_ASSIGN_OR_RETURN(Graph graph, GraphOfRank(whole, config.tensor_parallel_size, 0));
  LAMINA_ASSIGN_OR_RETURN(cluster.sliced, SplitGraph(std::move(graph)));
  LAMINA_ASSIGN_OR_RETURN(cluster.first_slices,
                          CutIntoStages(cluster.sliced, config.pipeline_parallel_size));
  cluster.kv_dtype = config.kv_dtype.value_or(cluster.model.dtype);
  cluster.wire_dtype = config.wire_dtype.value_or(cluster.model.dtype);
  const int ranks = config.tensor_parallel_size;
  cluster.heads = {cluster.model.num_heads / ranks, cluster.model.num_kv_heads / ranks,
                   cluster.model.head_dim, cluster.kv_dtype};
  FindWindows(cluster);
  return AddNodes(changes, cluster);
}

}  // namespace

Placement ClusterModel::PlacementAmong(int num_left) const {
  return config.shares_model() ? Placement::OfStages(first_slices, /*num_ranks=*/1)
                               : Placement::OfWhole(num_left);
}

Result<ClusterModel> ClusterModel::Load(const std::string& path, const ClusterChanges& changes) {
  LAMINA_ASSIGN_OR_RETURN(ClusterConfig config, ClusterConfig::Load(path));
  Result<ClusterModel> cluster = Of(std::move(config), changes);
  if (!cluster.ok()) return cluster.status().WithContext(path);
  return cluster;
}

Result<ClusterModel> ClusterModel::Of(ClusterConfig config, const ClusterChanges& changes) {
  ClusterModel cluster;
  cluster.config = std::move(config);
  LAMINA_RETURN_IF_ERROR(Fill(changes, cluster));
  return cluster;
}

}  // namespace lamina
