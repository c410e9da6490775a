#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "wire/codec.h"
#include "wire/codec_scratch.h"
#include "wire/control.pb.h"

namespace lamina {
namespace {

// The values of an enumeration, each beside that of control.proto.
constexpr std::array kDTypes = {std::pair(DType::kF32, control::KV_DTYPE_FLOAT32),
                                std::pair(DType::kBF16, control::KV_DTYPE_BFLOAT16),
                                std::pair(DType::kF16, control::KV_DTYPE_FLOAT16),
                                std::pair(DType::kF8, control::KV_DTYPE_FP8)};
constexpr std::array kFabrics = {std::pair(TransportKind::kVerbs, control::FABRIC_VERBS),
                                 std::pair(TransportKind::kUcx, control::FABRIC_UCX),
                                 std::pair(TransportKind::kShm, control::FABRIC_SHM),
                                 std::pair(TransportKind::kTcp, control::FABRIC_TCP)};
constexpr std::array kSwitches = {std::pair(Switch::kAuto, control::SWITCH_AUTO),
                                  std::pair(Switch::kOn, control::SWITCH_ON),
                                  std::pair(Switch::kOff, control::SWITCH_OFF)};
constexpr std::array kPollingModes = {std::pair(PollingMode::kHost, control::POLLING_HOST),
                                      std::pair(PollingMode::kDevice, control::POLLING_DEVICE),
                                      std::pair(PollingMode::kAuto, control::POLLING_AUTO)};
constexpr std::array kLoadFormats = {
    std::pair(LoadFormat::kAuto, control::LOAD_FORMAT_AUTO),
    std::pair(LoadFormat::kSafetensors, control::LOAD_FORMAT_SAFETENSORS),
    std::pair(LoadFormat::kDummy, control::LOAD_FORMAT_DUMMY)};

// The first value of the enumeration if the table has no such value.
template <typename Table, typename Plain>
auto ToProto(const Table& table, Plain value) {
  const auto found = std::ranges::find(table, value, [](const auto& pair) { return pair.first; });
  return found == table.end() ? typename Table::value_type::second_type{} : found->second;
}

template <typename Table, typename Proto, typename Plain>
Status ReadEnum(const Table& table, std::string_view field, const Proto& value, Plain& plain) {
  const auto found = std::ranges::find_if(table, [&](const auto& e) { return e.second == value; });
  if (found == table.end()) return UnknownValue(field, value);
  plain = found->first;
  return OkStatus();
}

void Write(const AttentionSpec& spec, control::AttentionSpec& proto) {
  proto.set_num_layers(spec.num_layers);
  proto.set_num_heads(spec.num_heads);
  proto.set_num_kv_heads(spec.num_kv_heads);
  proto.set_head_dim(spec.head_dim);
  proto.set_scale(spec.scale);
  proto.set_kv_dtype(ToProto(kDTypes, spec.kv_dtype));
  proto.set_wire_dtype(ToProto(kDTypes, spec.wire_dtype));
  proto.set_soft_cap(spec.soft_cap);
  WriteNumbers(spec.windows, *proto.mutable_windows());
}

Status Read(const control::AttentionSpec& proto, AttentionSpec& spec) {
  spec.num_layers = proto.num_layers();
  spec.num_heads = proto.num_heads();
  spec.num_kv_heads = proto.num_kv_heads();
  spec.head_dim = proto.head_dim();
  spec.scale = proto.scale();
  LAMINA_RETURN_IF_ERROR(ReadEnum(kDTypes, "kv_dtype", proto.kv_dtype(), spec.kv_dtype));
  LAMINA_RETURN_IF_ERROR(ReadEnum(kDTypes, "wire_dtype", proto.wire_dtype(), spec.wire_dtype));
  spec.soft_cap = proto.soft_cap();
  ReadNumbers(proto.windows(), spec.windows);
  return OkStatus();
}

void Write(const SessionLimits& limits, control::Limits& proto) {
  proto.set_max_num_seqs(limits.max_num_seqs);
  proto.set_max_num_batched_tokens(limits.max_num_batched_tokens);
  proto.set_max_model_len(limits.max_model_len);
  proto.set_peer_timeout_ms(limits.peer_timeout.count());
  proto.set_num_batches(limits.num_batches);
}

void Read(const control::Limits& proto, SessionLimits& limits) {
  limits.max_num_seqs = proto.max_num_seqs();
  limits.max_num_batched_tokens = proto.max_num_batched_tokens();
  limits.max_model_len = proto.max_model_len();
  limits.peer_timeout = milliseconds(proto.peer_timeout_ms());
  limits.num_batches = proto.num_batches();
}

// ConfigureMemory and ConfigureCompute have these fields under the same names.
template <typename Proto>
void WriteNode(const ConfigureNode& request, Proto& proto) {
  proto.set_epoch(request.epoch);
  proto.set_node_id(request.node.value);
  proto.set_node_name(request.node_name);
  Write(request.attention, *proto.mutable_attention());
  Write(request.limits, *proto.mutable_limits());
  for (const TransportKind fabric : request.fabrics) proto.add_fabrics(ToProto(kFabrics, fabric));
  proto.set_session_token(request.session_token);
  proto.set_payload_checksum(ToProto(kSwitches, request.payload_checksum));
  if (request.modelled_link) {
    control::ModelledLink& link = *proto.mutable_modelled_link();
    link.set_latency_ns(
        std::chrono::duration_cast<std::chrono::nanoseconds>(request.modelled_link->latency)
            .count());
    link.set_bytes_per_s(request.modelled_link->bytes_per_s);
  }
  proto.set_overlap(request.overlap);
  proto.set_polling(ToProto(kPollingModes, request.polling));
  proto.set_prepare_only(request.prepare_only);
}

template <typename Proto>
Status ReadNode(const Proto& proto, ConfigureNode& request) {
  request.epoch = proto.epoch();
  request.node = NodeId{proto.node_id()};
  request.node_name = proto.node_name();
  LAMINA_RETURN_IF_ERROR(Read(proto.attention(), request.attention));
  Read(proto.limits(), request.limits);
  LAMINA_RETURN_IF_ERROR(ReadMessages(
      proto.fabrics(), request.fabrics,
      [](const auto& from, TransportKind& to) { return ReadEnum(kFabrics, "fabrics", from, to); }));
  request.session_token = proto.session_token();
  LAMINA_RETURN_IF_ERROR(
      ReadEnum(kSwitches, "payload_checksum", proto.payload_checksum(), request.payload_checksum));
  if (proto.has_modelled_link()) {
    request.modelled_link = {std::chrono::nanoseconds(proto.modelled_link().latency_ns()),
                             proto.modelled_link().bytes_per_s()};
  }
  request.overlap = proto.overlap();
  LAMINA_RETURN_IF_ERROR(ReadEnum(kPollingModes, "polling", proto.polling(), request.polling));
  request.prepare_only = proto.prepare_only();
  return OkStatus();
}

void Write(const ConfigureMemory& request, control::ConfigureMemory& proto) {
  WriteNode(request, proto);
}

Status Read(const control::ConfigureMemory& proto, ConfigureMemory& request) {
  return ReadNode(proto, request);
}

void Write(const MemoryNodeAddress& peer, control::MemoryPeer& proto) {
  proto.set_node_id(peer.node.value);
  proto.set_node_name(peer.name);
  proto.set_offers(peer.offers);
  proto.set_group_id(peer.group.value);
  proto.set_first_kv_head(peer.first_kv_head);
  proto.set_num_kv_heads(peer.num_kv_heads);
}

Status Read(const control::MemoryPeer& proto, MemoryNodeAddress& peer) {
  peer = {NodeId{proto.node_id()},  proto.node_name(),     proto.offers(),
          NodeId{proto.group_id()}, proto.first_kv_head(), proto.num_kv_heads()};
  return OkStatus();
}

void Write(const ConfigureCompute& request, control::ConfigureCompute& proto) {
  WriteNode(request, proto);
  proto.set_model(request.model);
  proto.set_load_format(ToProto(kLoadFormats, request.load_format));
  proto.set_dummy_seed(request.dummy_seed);
  for (const MemoryNodeAddress& peer : request.memory_nodes) Write(peer, *proto.add_memory_nodes());
  proto.set_local_kv_tokens(request.local_kv_tokens);
  proto.set_joins_others(request.joins_others);
  if (request.part == ModelPart{}) return;
  control::ModelShare& share = *proto.mutable_share();
  share.set_num_stages(request.part.num_stages);
  share.set_stage(request.part.stage);
  share.set_num_ranks(request.part.num_ranks);
  share.set_rank(request.part.rank);
}

Status Read(const control::ConfigureCompute& proto, ConfigureCompute& request) {
  LAMINA_RETURN_IF_ERROR(ReadNode(proto, request));
  request.model = proto.model();
  LAMINA_RETURN_IF_ERROR(
      ReadEnum(kLoadFormats, "load_format", proto.load_format(), request.load_format));
  request.dummy_seed = proto.dummy_seed();
  request.local_kv_tokens = proto.local_kv_tokens();
  request.joins_others = proto.joins_others();
  if (proto.has_share()) {
    const control::ModelShare& share = proto.share();
    request.part = {share.num_stages(), share.stage(), share.num_ranks(), share.rank()};
  }
  return ReadMessages(proto.memory_nodes(), request.memory_nodes,
                      [](const auto& from, auto& to) { return Read(from, to); });
}

void Write(const ConnectCompute& request, control::ConnectCompute& proto) {
  proto.set_epoch(request.epoch);
  for (const ComputeNodeAddress& node : request.nodes) {
    control::ComputePeer& peer = *proto.add_nodes();
    peer.set_node_id(node.node.value);
    peer.set_node_name(node.name);
    peer.set_offers(node.offers);
  }
}

Status Read(const control::ConnectCompute& proto, ConnectCompute& request) {
  request.epoch = proto.epoch();
  for (const control::ComputePeer& peer : proto.nodes())
    request.nodes.push_back({NodeId{peer.node_id()}, peer.node_name(), peer.offers()});
  return OkStatus();
}

void Write(const Configured& answer, control::Configured& proto) {
  proto.set_status(static_cast<uint32_t>(answer.status.code()));
  proto.set_message(answer.status.message());
  proto.set_capacity_tokens(answer.capacity_tokens);
  proto.set_offers(answer.offers);
  proto.set_weight_bytes(answer.weight_bytes);
  for (const DataPath& path : answer.paths) {
    control::DataPath& told = *proto.add_paths();
    told.set_node_id(path.node.value);
    told.set_fabric(path.fabric);
    told.set_refused(path.refused);
    told.set_through(path.through);
  }
  proto.set_holds(answer.holds);
}

Status Read(const control::Configured& proto, Configured& answer) {
  LAMINA_RETURN_IF_ERROR(ReadStatus(proto.status(), proto.message(), answer.status));
  answer.capacity_tokens = proto.capacity_tokens();
  answer.offers = proto.offers();
  answer.weight_bytes = proto.weight_bytes();
  for (const control::DataPath& told : proto.paths())
    answer.paths.push_back({NodeId{told.node_id()}, told.fabric(), told.refused(), told.through()});
  answer.holds = proto.holds();
  return OkStatus();
}

void Write(const WeightsProgress& progress, control::LoadProgress& proto) {
  proto.set_loaded_bytes(progress.loaded_bytes);
  proto.set_total_bytes(progress.total_bytes);
}

Status Read(const control::LoadProgress& proto, WeightsProgress& progress) {
  progress = {proto.loaded_bytes(), proto.total_bytes()};
  return OkStatus();
}

void Write(const StatsRequest& request, control::StatsRequest& proto) {
  proto.set_epoch(request.epoch);
}

Status Read(const control::StatsRequest& proto, StatsRequest& request) {
  request.epoch = proto.epoch();
  return OkStatus();
}

void Write(const MemoryStats& stats, control::Stats& proto) {
  proto.set_epoch(stats.epoch);
  proto.set_capacity_tokens(stats.capacity_tokens);
  proto.set_used_tokens(stats.used_tokens);
  proto.set_num_sequences(stats.num_sequences);
  proto.set_attention_rows(stats.attention_rows);
  proto.set_attention_us(stats.attention_us);
  proto.set_stale_messages(stats.stale_messages);
  proto.set_attention_messages(stats.attention_messages);
  proto.set_attended_tokens(stats.attended_tokens);
}

Status Read(const control::Stats& proto, MemoryStats& stats) {
  stats.epoch = proto.epoch();
  stats.capacity_tokens = proto.capacity_tokens();
  stats.used_tokens = proto.used_tokens();
  stats.num_sequences = proto.num_sequences();
  stats.attention_rows = proto.attention_rows();
  stats.attention_us = proto.attention_us();
  stats.stale_messages = proto.stale_messages();
  stats.attention_messages = proto.attention_messages();
  stats.attended_tokens = proto.attended_tokens();
  return OkStatus();
}

void Write(const TraceQuery& query, control::TraceRequest& proto) {
  proto.set_epoch(query.epoch);
  proto.set_sent_ns(query.sent_ns);
}

Status Read(const control::TraceRequest& proto, TraceQuery& query) {
  query = {proto.epoch(), proto.sent_ns()};
  return OkStatus();
}

void Write(const TraceAnswer& answer, control::Trace& proto) {
  proto.set_epoch(answer.epoch);
  proto.set_clock(answer.clock);
  proto.set_asked_ns(answer.asked_ns);
  proto.set_received_ns(answer.received_ns);
  proto.set_answered_ns(answer.answered_ns);
  proto.set_records(answer.records);
  proto.set_num_lost(answer.num_lost);
  proto.set_more(answer.more);
  for (const PeerClock& peer : answer.peers) {
    control::PeerClock& told = *proto.add_peers();
    told.set_node_id(peer.node.value);
    told.set_error_ns(peer.error_ns);
  }
}

Status Read(const control::Trace& proto, TraceAnswer& answer) {
  answer.epoch = proto.epoch();
  answer.clock = proto.clock();
  answer.asked_ns = proto.asked_ns();
  answer.received_ns = proto.received_ns();
  answer.answered_ns = proto.answered_ns();
  answer.records = proto.records();
  answer.num_lost = proto.num_lost();
  answer.more = proto.more();
  for (const control::PeerClock& told : proto.peers())
    answer.peers.push_back({NodeId{told.node_id()}, told.error_ns()});
  return OkStatus();
}

template <typename Message>
struct ProtoOf;
template <>
struct ProtoOf<ConfigureMemory> : std::type_identity<control::ConfigureMemory> {};
template <>
struct ProtoOf<ConfigureCompute> : std::type_identity<control::ConfigureCompute> {};
template <>
struct ProtoOf<ConnectCompute> : std::type_identity<control::ConnectCompute> {};
template <>
struct ProtoOf<Configured> : std::type_identity<control::Configured> {};
template <>
struct ProtoOf<WeightsProgress> : std::type_identity<control::LoadProgress> {};
template <>
struct ProtoOf<StatsRequest> : std::type_identity<control::StatsRequest> {};
template <>
struct ProtoOf<MemoryStats> : std::type_identity<control::Stats> {};
template <>
struct ProtoOf<TraceQuery> : std::type_identity<control::TraceRequest> {};
template <>
struct ProtoOf<TraceAnswer> : std::type_identity<control::Trace> {};

}  // namespace

template <typename Message>
std::string Encode(const Message& message) {
  return EncodeAs<typename ProtoOf<Message>::type>([&](auto& proto) { Write(message, proto); });
}

template <typename Message>
Result<Message> Decode(std::string_view bytes) {
  return DecodeAs<typename ProtoOf<Message>::type, Message>(
      bytes, [](const auto& proto, Message& message) { return Read(proto, message); });
}

template std::string Encode(const ConfigureMemory&);
template std::string Encode(const ConfigureCompute&);
template std::string Encode(const ConnectCompute&);
template std::string Encode(const Configured&);
template std::string Encode(const WeightsProgress&);
template std::string Encode(const StatsRequest&);
template std::string Encode(const MemoryStats&);
template std::string Encode(const TraceQuery&);
template std::string Encode(const TraceAnswer&);
template Result<ConfigureMemory> Decode(std::string_view);
template Result<ConfigureCompute> Decode(std::string_view);
template Result<ConnectCompute> Decode(std::string_view);
template Result<Configured> Decode(std::string_view);
template Result<WeightsProgress> Decode(std::string_view);
template Result<StatsRequest> Decode(std::string_view);
template Result<MemoryStats> Decode(std::string_view);
template Result<TraceQuery> Decode(std::string_view);
template Result<TraceAnswer> Decode(std::string_view);

}  // namespace lamina
