#include "manager/cluster_requests.h"

#include <vector>

#include "manager/kv_content.h"
#include "manager/resolve_config.h"
#include "transport/crypto.h"
#include "transport/ladder.h"
#include "wire/wire_format.h"

namespace lamina {
namespace {

// ResolveConfig has set both dtypes; without it, in tests, auto is float32.
AttentionSpec AttentionSpecOf(const ModelConfig& model, const ClusterConfig& config) {
  return MakeAttentionSpec(model, config.kv_dtype.value_or(DType::kF32),
                           config.wire_dtype.value_or(DType::kF32));
}

SessionLimits LimitsOf(const ClusterConfig& config) {
  SessionLimits limits;
  limits.max_num_seqs = config.max_num_seqs;
  limits.max_num_batched_tokens = config.max_num_batched_tokens;
  limits.max_model_len = config.max_model_len;
  limits.num_batches = config.num_batches;
  limits.peer_timeout = std::chrono::duration_cast<milliseconds>(config.peer_timeout);
  limits.suspect_after = std::chrono::ceil<milliseconds>(config.suspect_after);
  return limits;
}

std::optional<ModelledLink> ModelledLinkOf(const ClusterConfig& config) {
  if (!config.models_network()) return std::nullopt;
  return ModelledLink{config.modelled_latency, config.modelled_gb_per_s * 1e9};
}

}  // namespace

ClusterRequests::ClusterRequests(const NodeConnections& nodes, const ModelConfig& model,
                                 HeldKv held, uint64_t manager_id)
    : nodes_(nodes), model_(model), held_(std::move(held)), manager_id_(manager_id) {}

Status ClusterRequests::DrawSessionToken() {
  LAMINA_ASSIGN_OR_RETURN(session_token_, RandomBytes(kSessionTokenBytes));
  return OkStatus();
}

Status ClusterRequests::Fill(const Node& node, ConfigureNode& request) const {
  const ClusterConfig& config = nodes_.config();
  request.epoch = nodes_.epoch();
  request.node = node.id;
  request.node_name = node.config.name;
  request.attention = AttentionSpecOf(model_, config);
  request.limits = LimitsOf(config);
  LAMINA_ASSIGN_OR_RETURN(
      const std::vector<std::string> fabrics,
      LadderKinds(TransportKindName(config.transport), config.transport_fallback));
  for (const std::string& fabric : fabrics)
    request.fabrics.push_back(kTransportKinds.Named(fabric).value_or(TransportKind::kAuto));
  request.payload_checksum = config.payload_checksum;
  request.modelled_link = ModelledLinkOf(config);
  request.overlap = config.overlap == Switch::kOn;
  request.polling = nodes_.compute().size() == 1 ? config.polling : PollingMode::kHost;
  if (!nodes_.local()) request.session_token = session_token_;
  return OkStatus();
}

Result<ConfigureMemory> ClusterRequests::Memory(const Node& node) const {
  ConfigureMemory request;
  LAMINA_RETURN_IF_ERROR(Fill(node, request));
  request.attention.num_heads = node.num_kv_heads * (model_.num_heads / model_.num_kv_heads);
  request.attention.num_kv_heads = node.num_kv_heads;
  request.keep_for = std::chrono::ceil<milliseconds>(nodes_.config().start_timeout);
  request.manager_id = manager_id_;
  if (request.manager_id != 0) request.kv_content = KvContent(nodes_.config(), node);
  request.takes_over = held_.takes_over;
  if (const auto id = held_.ids.find(node.id); id != held_.ids.end()) request.kv_id = id->second;
  if (const auto tokens = held_.tokens.find(node.group); tokens != held_.tokens.end()) {
    for (const HeldTokens& one : tokens->second)
      request.held.push_back({one.sequence, one.num_tokens});
  }
  return request;
}

Result<ConfigureCompute> ClusterRequests::Compute(const Node& node) const {
  const ClusterConfig& config = nodes_.config();
  ConfigureCompute request;
  LAMINA_RETURN_IF_ERROR(Fill(node, request));
  request.model = config.model_path;
  request.load_format = config.load_format;
  if (nodes_.local()) {
    LAMINA_ASSIGN_OR_RETURN(
        request.local_kv_tokens,
        TokensInMemory(model_.num_layers,
                       KvBytesPerToken(model_, config.kv_dtype) / model_.num_layers,
                       node.config.kv_offload, node.config.memory_bytes));
  }
  request.joins_others = nodes_.compute().size() > 1;
  if (config.shares_model()) {
    const ModelShare share = nodes_.view().ShareOf(node);
    request.part = {.num_stages = share.num_stages,
                    .stage = share.stage,
                    .num_ranks = share.num_ranks,
                    .rank = share.rank};
  }
  request.attention.num_heads = model_.num_heads / config.tensor_parallel_size;
  request.attention.num_kv_heads = node.num_kv_heads;
  for (const std::unique_ptr<Node>& memory : nodes_.nodes()) {
    if (memory->role != NodeRole::kMemory || memory->left_out()) continue;
    if (memory->rank != node.rank) continue;  // it works for another compute node
    request.memory_nodes.push_back({memory->id, memory->config.name, memory->configured.offers,
                                    memory->group, memory->first_kv_head - node.first_kv_head,
                                    memory->num_kv_heads});
  }
  return request;
}

ConnectCompute ClusterRequests::Join() const {
  ConnectCompute request;
  request.epoch = nodes_.epoch();
  for (const Node* node : nodes_.compute())
    request.nodes.push_back({node->id, node->config.name, node->configured.offers});
  return request;
}

}  // namespace lamina
