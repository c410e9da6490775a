// What nodes are told when they are configured: node_connections.cc sends it.
#include <optional>
#include <string>
#include <vector>

#include "manager/kv_content.h"
#include "manager/node_connections.h"
#include "manager/resolve_config.h"
#include "transport/ladder.h"

namespace lamina {
namespace {

// ResolveConfig has set both dtypes; without it, in tests, auto is float32.
AttentionSpec AttentionSpecOf(const ModelConfig& model, const ClusterConfig& config) {
  return MakeAttentionSpec(model, config.kv_dtype.value_or(DType::kF32),
                           config.wire_dtype.value_or(DType::kF32));
}

}  // namespace

SessionLimits NodeConnections::limits() const {
  SessionLimits limits;
  limits.max_num_seqs = config_.max_num_seqs;
  limits.max_num_batched_tokens = config_.max_num_batched_tokens;
  limits.max_model_len = config_.max_model_len;
  limits.num_batches = config_.num_batches;
  limits.peer_timeout = std::chrono::duration_cast<milliseconds>(config_.peer_timeout);
  limits.suspect_after = std::chrono::ceil<milliseconds>(config_.suspect_after);
  return limits;
}

std::optional<ModelledLink> NodeConnections::modelled_link() const {
  if (!config_.models_network()) return std::nullopt;
  return ModelledLink{config_.modelled_latency, config_.modelled_gb_per_s * 1e9};
}

Status NodeConnections::FillRequest(const Node& node, ConfigureNode& request) const {
  request.epoch = epoch_;
  request.node = node.id;
  request.node_name = node.config.name;
  request.attention = AttentionSpecOf(model_, config_);
  request.limits = limits();
  LAMINA_ASSIGN_OR_RETURN(
      const std::vector<std::string> fabrics,
      LadderKinds(TransportKindName(config_.transport), config_.transport_fallback));
  for (const std::string& fabric : fabrics)
    request.fabrics.push_back(kTransportKinds.Named(fabric).value_or(TransportKind::kAuto));
  request.payload_checksum = config_.payload_checksum;
  request.modelled_link = modelled_link();
  request.overlap = config_.overlap == Switch::kOn;
  request.polling = compute_.size() == 1 ? config_.polling : PollingMode::kHost;
  if (!local()) request.session_token = session_token_;
  return OkStatus();
}

Result<ConfigureMemory> NodeConnections::MemoryRequest(const Node& node) const {
  ConfigureMemory request;
  LAMINA_RETURN_IF_ERROR(FillRequest(node, request));
  request.attention.num_heads = node.num_kv_heads * (model_.num_heads / model_.num_kv_heads);
  request.attention.num_kv_heads = node.num_kv_heads;
  request.keep_for = std::chrono::ceil<milliseconds>(config_.start_timeout);
  request.manager_id = means_.manager_id;
  if (request.manager_id != 0) request.kv_content = KvContent(config_, node);
  request.takes_over = held_.takes_over;
  if (const auto id = held_.ids.find(node.id); id != held_.ids.end()) request.kv_id = id->second;
  if (const auto tokens = held_.tokens.find(node.group); tokens != held_.tokens.end()) {
    for (const HeldTokens& one : tokens->second)
      request.held.push_back({one.sequence, one.num_tokens});
  }
  return request;
}

Result<ConfigureCompute> NodeConnections::ComputeRequest(const Node& node) const {
  ConfigureCompute request;
  LAMINA_RETURN_IF_ERROR(FillRequest(node, request));
  request.model = config_.model_path;
  request.load_format = config_.load_format;
  if (local())
    request.local_kv_tokens = node.config.memory_bytes / KvBytesPerToken(model_, config_.kv_dtype);
  request.joins_others = compute_.size() > 1;
  if (config_.shares_model()) {
    const ModelShare share = view_.ShareOf(node);
    request.part = {.num_stages = share.num_stages,
                    .stage = share.stage,
                    .num_ranks = share.num_ranks,
                    .rank = share.rank};
  }
  request.attention.num_heads = model_.num_heads / config_.tensor_parallel_size;
  request.attention.num_kv_heads = node.num_kv_heads;
  for (const std::unique_ptr<Node>& memory : nodes_) {
    if (memory->role != NodeRole::kMemory || memory->left_out()) continue;
    if (memory->rank != node.rank) continue;  // it works for another compute node
    request.memory_nodes.push_back({memory->id, memory->config.name, memory->configured.offers,
                                    memory->group, memory->first_kv_head - node.first_kv_head,
                                    memory->num_kv_heads});
  }
  return request;
}

ConnectCompute NodeConnections::JoinRequest() const {
  ConnectCompute request;
  request.epoch = epoch_;
  for (const Node* node : compute_)
    request.nodes.push_back({node->id, node->config.name, node->configured.offers});
  return request;
}

}  // namespace lamina
