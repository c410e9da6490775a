#include "cli/start_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/host_memory.h"
#include "base/units.h"
#include "manager/resolve_config.h"

namespace lamina {
namespace {

// The memory nodes, or the compute node if there are none.
std::vector<NodeConfig> NodesWithKv(const ClusterConfig& config) {
  std::vector<NodeConfig> nodes;
  for (const NodeRole role : {NodeRole::kMemory, NodeRole::kCompute}) {
    std::ranges::copy_if(config.nodes, std::back_inserter(nodes),
                         [role](const NodeConfig& node) { return node.role == role; });
    if (!nodes.empty()) return nodes;
  }
  return nodes;
}

// "2 memory nodes of 256MiB", or what they have together if that differs.
std::string DescribeNodes(const std::vector<NodeConfig>& nodes) {
  int64_t sum = 0;
  bool are_equal = true;
  for (const NodeConfig& node : nodes) {
    sum += node.memory_bytes;
    are_equal = are_equal && node.memory_bytes == nodes.front().memory_bytes;
  }
  if (nodes.front().role == NodeRole::kCompute)
    return fmt::format("{} on the compute node", FormatSize(sum));
  const char* const plural = nodes.size() == 1 ? "" : "s";
  return are_equal
             ? fmt::format("{} memory node{} of {}", nodes.size(), plural,
                           FormatSize(nodes.front().memory_bytes))
             : fmt::format("{} memory nodes of {} together", nodes.size(), FormatGigabytes(sum));
}

std::string RoomLine(const ClusterConfig& config, const std::optional<KvRoom>& room,
                     int64_t bytes_per_token) {
  const std::string per_token =
      fmt::format("KV cache: {} bytes for each token ({})", bytes_per_token,
                  kKvDTypeChoices.NameOf(config.kv_dtype));
  if (!room) return per_token;
  return fmt::format("{}, so {} have room for about {} tokens", per_token,
                     DescribeNodes(NodesWithKv(config)), room->all_tokens);
}

// What one node needs for the longest request, in whole MiB.
std::string MemoryFor(const ClusterConfig& config, const KvRoom& room) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const int64_t bytes =
      SaturatedProduct(config.max_model_len, room.bytes_per_token) / config.kv_head_parallel;
  return FormatSize(SaturatedProduct((bytes - 1) / kMiB + 1, kMiB));
}

}  // namespace

std::optional<KvRoom> KvRoomOf(const ClusterConfig& config, const ModelConfig& model) {
  const std::vector<NodeConfig> nodes = NodesWithKv(config);
  KvRoom room;
  room.bytes_per_token = KvBytesPerToken(model, config.kv_dtype);
  if (room.bytes_per_token <= 0) return std::nullopt;
  const bool has_memory_nodes = !nodes.empty() && nodes.front().role == NodeRole::kMemory;
  const auto group = static_cast<size_t>(has_memory_nodes ? config.kv_head_parallel : 1);
  for (size_t first = 0; first + group <= nodes.size(); first += group) {
    int64_t tokens = std::numeric_limits<int64_t>::max();
    for (size_t i = first; i < first + group; ++i) {
      const NodeConfig& node = nodes[i];
      if (node.kv_offload.any() || (has_memory_nodes && node.offload.any())) return std::nullopt;
      // Each of a group has its share of a token's kv_heads.
      const int64_t share =
          std::max<int64_t>(room.bytes_per_token / static_cast<int64_t>(group), 1);
      tokens = std::min(tokens, node.memory_bytes / share);
    }
    room.all_tokens += tokens;
    room.sequence_tokens = std::max(room.sequence_tokens, tokens);
  }
  if (config.spread_tokens > 0) room.sequence_tokens = room.all_tokens;
  return room;
}

std::string StartScreen(const ClusterConfig& config, const ModelConfig& model,
                        const ModelFacts& facts) {
  const std::optional<KvRoom> room = KvRoomOf(config, model);
  const std::string weights = config.load_format == LoadFormat::kDummy ? ", random weights"
                              : facts.weight_bytes > 0
                                  ? ", " + FormatFileBytes(facts.weight_bytes) + " of weights"
                                  : "";
  std::string text =
      fmt::format("{}: {}, {} parameters{}\n{}\nUp to {} sequences at a time, of {} tokens at most",
                  config.served_name, facts.architecture, FormatParameters(facts.num_parameters),
                  weights, RoomLine(config, room, KvBytesPerToken(model, config.kv_dtype)),
                  config.max_num_seqs, config.max_model_len);
  if (!room || room->sequence_tokens >= config.max_model_len) return text;
  return text +
         fmt::format(
             "\nThere is room for {} tokens of one sequence only, and requests of more are "
             "refused. For {} tokens a memory node needs --memory {}; or share sequences with "
             "--spread-tokens, or tell clients with --max-model-len {}",
             room->sequence_tokens, config.max_model_len, MemoryFor(config, *room),
             room->sequence_tokens);
}

}  // namespace lamina
