// Which field of control.proto each member of a control message is. Every member is listed once,
// and codec.cc writes and reads messages by these lists. A member that is in no list does not
// travel. The messages between a front and the manager are in engine_fields.h. Nothing but codec.cc
// includes these.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/sampling_params.h"
#include "wire/control.pb.h"
#include "wire/session_messages.h"
#include "wire/step_messages.h"

namespace lamina::codec {

// A member that is one field of the protobuf. A field that is one number or a value of an
// enumeration has a setter, and every other one an accessor to what is filled in (`mutable_`).
template <typename Member, typename Get, typename Put>
struct Field {
  constexpr Field(Member member, Get get, Put put, const char* name = "")
      : member(member), get(get), put(put), name(name) {}

  Member member;
  Get get;
  Put put;
  const char* name;  // of an enumeration's field, for errors
};
// Accessors of repeated fields are overloaded.
template <typename Member, typename P, typename Values>
Field(Member, const Values& (P::*)() const, Values* (P::*)(), const char* = "")
    -> Field<Member, const Values& (P::*)() const, Values* (P::*)()>;

// A field that is absent if the member is an empty std::optional, or, where the member is no
// std::optional, if it has its default value.
template <typename Has, typename OfValue>
struct Optional : OfValue {
  constexpr Optional(Has has, OfValue field) : OfValue(field), has(has) {}

  Has has;
};

// A member whose parts are fields of the protobuf of the whole message.
template <typename Member>
struct Inner {
  constexpr explicit Inner(Member member) : member(member) {}

  Member member;
};

// All of a message that travels as the protobuf P.
template <typename P, typename... Fields>
struct FieldList {
  using Proto = P;
  static constexpr size_t kSize = sizeof...(Fields);
  std::tuple<Fields...> fields;
};
template <typename P, typename... Fields>
constexpr FieldList<P, Fields...> List(Fields... fields) {
  return {{fields...}};
}

// The values of an enumeration, each beside that of control.proto. A value of control.proto that
// stands beside none is in no message.
constexpr auto ValuesOf(DType) {
  return std::array{std::pair(DType::kF32, control::KV_DTYPE_FLOAT32),
                    std::pair(DType::kBF16, control::KV_DTYPE_BFLOAT16),
                    std::pair(DType::kF16, control::KV_DTYPE_FLOAT16),
                    std::pair(DType::kF8, control::KV_DTYPE_FP8),
                    std::pair(DType::kI8Scaled, control::KV_DTYPE_INT8_PER_TOKEN_HEAD),
                    std::pair(DType::kF8Scaled, control::KV_DTYPE_FP8_PER_TOKEN_HEAD)};
}
constexpr auto ValuesOf(TransportKind) {
  return std::array{std::pair(TransportKind::kVerbs, control::FABRIC_VERBS),
                    std::pair(TransportKind::kUcx, control::FABRIC_UCX),
                    std::pair(TransportKind::kShm, control::FABRIC_SHM),
                    std::pair(TransportKind::kTcp, control::FABRIC_TCP)};
}
constexpr auto ValuesOf(Switch) {
  return std::array{std::pair(Switch::kAuto, control::SWITCH_AUTO),
                    std::pair(Switch::kOn, control::SWITCH_ON),
                    std::pair(Switch::kOff, control::SWITCH_OFF)};
}
constexpr auto ValuesOf(PollingMode) {
  return std::array{std::pair(PollingMode::kHost, control::POLLING_HOST),
                    std::pair(PollingMode::kDevice, control::POLLING_DEVICE),
                    std::pair(PollingMode::kAuto, control::POLLING_AUTO)};
}
constexpr auto ValuesOf(LoadFormat) {
  return std::array{std::pair(LoadFormat::kAuto, control::LOAD_FORMAT_AUTO),
                    std::pair(LoadFormat::kSafetensors, control::LOAD_FORMAT_SAFETENSORS),
                    std::pair(LoadFormat::kDummy, control::LOAD_FORMAT_DUMMY)};
}
constexpr auto ValuesOf(FailureCause) {
  return std::array{std::pair(FailureCause::kRequest, control::FAILURE_CAUSE_REQUEST),
                    std::pair(FailureCause::kKvLost, control::FAILURE_CAUSE_KV_LOST)};
}
constexpr auto ValuesOf(PeerState::State) {
  using State = PeerState::State;
  return std::array{std::pair(State::kSuspended, control::PEER_CONDITION_SUSPENDED),
                    std::pair(State::kResumed, control::PEER_CONDITION_RESUMED),
                    std::pair(State::kLost, control::PEER_CONDITION_LOST)};
}

constexpr auto FieldsOf(const AttentionWindow*) {
  using M = AttentionWindow;
  using P = control::AttentionWindow;
  return List<P>(Field(&M::size, &P::size, &P::set_size),
                 Field(&M::chunked, &P::chunked, &P::set_chunked));
}
constexpr auto FieldsOf(const AttentionSpec*) {
  using M = AttentionSpec;
  using P = control::AttentionSpec;
  return List<P>(Field(&M::num_layers, &P::num_layers, &P::set_num_layers),
                 Field(&M::num_heads, &P::num_heads, &P::set_num_heads),
                 Field(&M::num_kv_heads, &P::num_kv_heads, &P::set_num_kv_heads),
                 Field(&M::head_dim, &P::head_dim, &P::set_head_dim),
                 Field(&M::scale, &P::scale, &P::set_scale),
                 Field(&M::kv_dtype, &P::kv_dtype, &P::set_kv_dtype, "kv_dtype"),
                 Field(&M::wire_dtype, &P::wire_dtype, &P::set_wire_dtype, "wire_dtype"),
                 Field(&M::soft_cap, &P::soft_cap, &P::set_soft_cap),
                 Field(&M::windows, &P::windows, &P::mutable_windows));
}
constexpr auto FieldsOf(const SessionLimits*) {
  using M = SessionLimits;
  using P = control::Limits;
  return List<P>(
      Field(&M::max_num_seqs, &P::max_num_seqs, &P::set_max_num_seqs),
      Field(&M::max_num_batched_tokens, &P::max_num_batched_tokens, &P::set_max_num_batched_tokens),
      Field(&M::max_model_len, &P::max_model_len, &P::set_max_model_len),
      Field(&M::peer_timeout, &P::peer_timeout_ms, &P::set_peer_timeout_ms),
      Field(&M::num_batches, &P::num_batches, &P::set_num_batches),
      Field(&M::suspect_after, &P::suspect_after_ms, &P::set_suspect_after_ms));
}
// A duration travels as the count of its own unit.
static_assert(std::is_same_v<decltype(ModelledLink::latency), std::chrono::nanoseconds>);
constexpr auto FieldsOf(const ModelledLink*) {
  using M = ModelledLink;
  using P = control::ModelledLink;
  return List<P>(Field(&M::latency, &P::latency_ns, &P::set_latency_ns),
                 Field(&M::bytes_per_s, &P::bytes_per_s, &P::set_bytes_per_s));
}

// ConfigureMemory and ConfigureCompute have these fields under the same names.
template <typename P, typename... Fields>
constexpr auto NodeList(Fields... fields) {
  using M = ConfigureNode;
  return List<P>(Field(&M::epoch, &P::epoch, &P::set_epoch),
                 Field(&M::node, &P::node_id, &P::set_node_id),
                 Field(&M::node_name, &P::node_name, &P::mutable_node_name),
                 Field(&M::attention, &P::attention, &P::mutable_attention),
                 Field(&M::limits, &P::limits, &P::mutable_limits),
                 Field(&M::fabrics, &P::fabrics, &P::mutable_fabrics, "fabrics"),
                 Field(&M::session_token, &P::session_token, &P::mutable_session_token),
                 Field(&M::payload_checksum, &P::payload_checksum, &P::set_payload_checksum,
                       "payload_checksum"),
                 Optional(&P::has_modelled_link,
                          Field(&M::modelled_link, &P::modelled_link, &P::mutable_modelled_link)),
                 Field(&M::overlap, &P::overlap, &P::set_overlap),
                 Field(&M::polling, &P::polling, &P::set_polling, "polling"),
                 Field(&M::prepare_only, &P::prepare_only, &P::set_prepare_only), fields...);
}
constexpr auto FieldsOf(const HeldSequence*) {
  using M = HeldSequence;
  using P = control::HeldSequence;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence),
                 Field(&M::num_tokens, &P::num_tokens, &P::set_num_tokens));
}
constexpr auto FieldsOf(const ConfigureMemory*) {
  using M = ConfigureMemory;
  using P = control::ConfigureMemory;
  return NodeList<P>(Field(&M::kv_id, &P::kv_id, &P::set_kv_id),
                     Field(&M::held, &P::held, &P::mutable_held),
                     Field(&M::keep_for, &P::keep_for_ms, &P::set_keep_for_ms),
                     Field(&M::manager_id, &P::manager_id, &P::set_manager_id),
                     Field(&M::kv_content, &P::kv_content, &P::set_kv_content),
                     Field(&M::takes_over, &P::takes_over, &P::set_takes_over));
}
constexpr auto FieldsOf(const MemoryNodeAddress*) {
  using M = MemoryNodeAddress;
  using P = control::MemoryPeer;
  return List<P>(Field(&M::node, &P::node_id, &P::set_node_id),
                 Field(&M::name, &P::node_name, &P::mutable_node_name),
                 Field(&M::offers, &P::offers, &P::mutable_offers),
                 Field(&M::group, &P::group_id, &P::set_group_id),
                 Field(&M::first_kv_head, &P::first_kv_head, &P::set_first_kv_head),
                 Field(&M::num_kv_heads, &P::num_kv_heads, &P::set_num_kv_heads));
}
constexpr auto FieldsOf(const ModelPart*) {
  using M = ModelPart;
  using P = control::ModelShare;
  return List<P>(Field(&M::num_stages, &P::num_stages, &P::set_num_stages),
                 Field(&M::stage, &P::stage, &P::set_stage),
                 Field(&M::num_ranks, &P::num_ranks, &P::set_num_ranks),
                 Field(&M::rank, &P::rank, &P::set_rank));
}
constexpr auto FieldsOf(const ConfigureCompute*) {
  using M = ConfigureCompute;
  using P = control::ConfigureCompute;
  return NodeList<P>(Field(&M::model, &P::model, &P::mutable_model),
                     Field(&M::load_format, &P::load_format, &P::set_load_format, "load_format"),
                     Field(&M::dummy_seed, &P::dummy_seed, &P::set_dummy_seed),
                     Field(&M::memory_nodes, &P::memory_nodes, &P::mutable_memory_nodes),
                     Field(&M::local_kv_tokens, &P::local_kv_tokens, &P::set_local_kv_tokens),
                     Field(&M::joins_others, &P::joins_others, &P::set_joins_others),
                     Optional(&P::has_share, Field(&M::part, &P::share, &P::mutable_share)));
}
constexpr auto FieldsOf(const ComputeNodeAddress*) {
  using M = ComputeNodeAddress;
  using P = control::ComputePeer;
  return List<P>(Field(&M::node, &P::node_id, &P::set_node_id),
                 Field(&M::name, &P::node_name, &P::mutable_node_name),
                 Field(&M::offers, &P::offers, &P::mutable_offers));
}
constexpr auto FieldsOf(const ConnectCompute*) {
  using M = ConnectCompute;
  using P = control::ConnectCompute;
  return List<P>(Field(&M::epoch, &P::epoch, &P::set_epoch),
                 Field(&M::nodes, &P::nodes, &P::mutable_nodes));
}
constexpr auto FieldsOf(const LosePeer*) {
  using M = LosePeer;
  using P = control::LosePeer;
  return List<P>(Field(&M::epoch, &P::epoch, &P::set_epoch),
                 Field(&M::node, &P::node_id, &P::set_node_id),
                 Field(&M::message, &P::message, &P::mutable_message));
}
constexpr auto FieldsOf(const PeerState*) {
  using M = PeerState;
  using P = control::PeerState;
  return List<P>(Field(&M::epoch, &P::epoch, &P::set_epoch),
                 Field(&M::node, &P::node_id, &P::set_node_id),
                 Field(&M::state, &P::condition, &P::set_condition, "condition"),
                 Field(&M::message, &P::message, &P::mutable_message),
                 Field(&M::suspension, &P::suspension, &P::set_suspension));
}
constexpr auto FieldsOf(const DataPath*) {
  using M = DataPath;
  using P = control::DataPath;
  return List<P>(Field(&M::node, &P::node_id, &P::set_node_id),
                 Field(&M::fabric, &P::fabric, &P::mutable_fabric),
                 Field(&M::refused, &P::refused, &P::mutable_refused),
                 Field(&M::through, &P::through, &P::mutable_through));
}
constexpr auto FieldsOf(const LeftSequence*) {
  using M = LeftSequence;
  using P = control::LeftSequence;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence),
                 Field(&M::slots, &P::slots, &P::mutable_slots));
}
constexpr auto FieldsOf(const LeftKv*) {
  using M = LeftKv;
  using P = control::LeftKv;
  return List<P>(Field(&M::manager, &P::manager, &P::set_manager),
                 Field(&M::sequences, &P::sequences, &P::mutable_sequences));
}
constexpr auto FieldsOf(const ElasticKv*) {
  using M = ElasticKv;
  using P = control::ElasticKv;
  return List<P>(Field(&M::num_layers, &P::num_layers, &P::set_num_layers),
                 Field(&M::least_inside, &P::least_inside, &P::set_least_inside),
                 Field(&M::token_layers, &P::token_layers, &P::set_token_layers));
}
static_assert(std::is_same_v<decltype(LayersInside::waited), std::chrono::nanoseconds>);
constexpr auto FieldsOf(const LayersInside*) {
  using M = LayersInside;
  using P = control::LayersInside;
  return List<P>(Field(&M::num_layers, &P::num_layers, &P::set_num_layers),
                 Field(&M::waited, &P::waited_ns, &P::set_waited_ns),
                 Field(&M::copy, &P::copy_ns, &P::set_copy_ns));
}
constexpr auto FieldsOf(const Configured*) {
  using M = Configured;
  using P = control::Configured;
  return List<P>(
      Inner(&M::status), Field(&M::capacity_tokens, &P::capacity_tokens, &P::set_capacity_tokens),
      Field(&M::offers, &P::offers, &P::mutable_offers),
      Field(&M::weight_bytes, &P::weight_bytes, &P::set_weight_bytes),
      Field(&M::paths, &P::paths, &P::mutable_paths),
      Field(&M::largest_interval, &P::largest_interval, &P::set_largest_interval),
      Optional(&P::has_elastic_kv, Field(&M::elastic_kv, &P::elastic_kv, &P::mutable_elastic_kv)),
      Field(&M::layers_inside, &P::layers_inside, &P::set_layers_inside),
      Field(&M::holds, &P::holds, &P::mutable_holds), Field(&M::kv_id, &P::kv_id, &P::set_kv_id),
      Field(&M::missing, &P::missing, &P::mutable_missing),
      Field(&M::left, &P::left, &P::mutable_left));
}
constexpr auto FieldsOf(const WeightsProgress*) {
  using M = WeightsProgress;
  using P = control::LoadProgress;
  return List<P>(Field(&M::loaded_bytes, &P::loaded_bytes, &P::set_loaded_bytes),
                 Field(&M::total_bytes, &P::total_bytes, &P::set_total_bytes));
}
constexpr auto FieldsOf(const LayersTold*) {
  using M = LayersTold;
  using P = control::LayersTold;
  return List<P>(Field(&M::epoch, &P::epoch, &P::set_epoch),
                 Field(&M::inside, &P::inside, &P::mutable_inside));
}
constexpr auto FieldsOf(const StatsRequest*) {
  using M = StatsRequest;
  using P = control::StatsRequest;
  return List<P>(Field(&M::epoch, &P::epoch, &P::set_epoch));
}
constexpr auto FieldsOf(const MemoryStats*) {
  using M = MemoryStats;
  using P = control::Stats;
  return List<P>(Field(&M::epoch, &P::epoch, &P::set_epoch),
                 Field(&M::capacity_tokens, &P::capacity_tokens, &P::set_capacity_tokens),
                 Field(&M::used_tokens, &P::used_tokens, &P::set_used_tokens),
                 Field(&M::num_sequences, &P::num_sequences, &P::set_num_sequences),
                 Field(&M::attention_rows, &P::attention_rows, &P::set_attention_rows),
                 Field(&M::attention_us, &P::attention_us, &P::set_attention_us),
                 Field(&M::stale_messages, &P::stale_messages, &P::set_stale_messages),
                 Field(&M::attention_messages, &P::attention_messages, &P::set_attention_messages),
                 Field(&M::attended_tokens, &P::attended_tokens, &P::set_attended_tokens));
}
constexpr auto FieldsOf(const TraceQuery*) {
  using M = TraceQuery;
  using P = control::TraceRequest;
  return List<P>(Field(&M::epoch, &P::epoch, &P::set_epoch),
                 Field(&M::sent_ns, &P::sent_ns, &P::set_sent_ns));
}
constexpr auto FieldsOf(const PeerClock*) {
  using M = PeerClock;
  using P = control::PeerClock;
  return List<P>(Field(&M::node, &P::node_id, &P::set_node_id),
                 Field(&M::error_ns, &P::error_ns, &P::set_error_ns));
}
constexpr auto FieldsOf(const TraceAnswer*) {
  using M = TraceAnswer;
  using P = control::Trace;
  return List<P>(
      Field(&M::epoch, &P::epoch, &P::set_epoch), Field(&M::clock, &P::clock, &P::set_clock),
      Field(&M::asked_ns, &P::asked_ns, &P::set_asked_ns),
      Field(&M::received_ns, &P::received_ns, &P::set_received_ns),
      Field(&M::answered_ns, &P::answered_ns, &P::set_answered_ns),
      Field(&M::records, &P::records, &P::mutable_records),
      Field(&M::num_lost, &P::num_lost, &P::set_num_lost), Field(&M::more, &P::more, &P::set_more),
      Field(&M::peers, &P::peers, &P::mutable_peers));
}
constexpr auto FieldsOf(const DecodeRow*) {
  using M = DecodeRow;
  using P = control::DecodeRow;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence),
                 Field(&M::num_stored, &P::num_stored, &P::set_num_stored),
                 Optional(&P::has_slot, Field(&M::slot, &P::slot, &P::set_slot)),
                 Field(&M::position, &P::position, &P::set_position),
                 Field(&M::again, &P::again, &P::set_again));
}
constexpr auto FieldsOf(const PrefillChunk*) {
  using M = PrefillChunk;
  using P = control::PrefillChunk;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence),
                 Field(&M::num_stored, &P::num_stored, &P::set_num_stored),
                 Field(&M::slots, &P::slots, &P::mutable_slots),
                 Field(&M::first_position, &P::first_position, &P::set_first_position));
}
constexpr auto FieldsOf(const SharedPrefix*) {
  using M = SharedPrefix;
  using P = control::SharedPrefix;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence),
                 Field(&M::slots, &P::slots, &P::mutable_slots));
}
constexpr auto FieldsOf(const MemoryOrder*) {
  using M = MemoryOrder;
  using P = control::MemoryOrder;
  return List<P>(Field(&M::epoch, &P::epoch, &P::set_epoch),
                 Field(&M::step, &P::step, &P::set_step),
                 Field(&M::batch, &P::batch, &P::set_batch),
                 Field(&M::released, &P::released, &P::mutable_released),
                 Field(&M::shared, &P::shared, &P::mutable_shared),
                 Field(&M::decode, &P::decode, &P::mutable_decode),
                 Field(&M::prefill, &P::prefill, &P::mutable_prefill),
                 Field(&M::dummy_prefill, &P::dummy_prefill, &P::set_dummy_prefill),
                 Field(&M::layers_inside, &P::layers_inside, &P::set_layers_inside));
}
constexpr auto FieldsOf(const std::pair<TokenId, float>*) {
  using M = std::pair<TokenId, float>;
  using P = control::LogitBias;
  return List<P>(Field(&M::first, &P::token, &P::set_token),
                 Field(&M::second, &P::bias, &P::set_bias));
}
constexpr auto FieldsOf(const TokenList*) {
  using M = TokenList;
  using P = control::TokenList;
  return List<P>(Field(&M::tokens, &P::tokens, &P::mutable_tokens));
}
constexpr auto FieldsOf(const SamplingParams*) {
  using M = SamplingParams;
  using P = control::SamplingParams;
  return List<P>(
      Field(&M::temperature, &P::temperature, &P::set_temperature),
      Field(&M::top_p, &P::top_p, &P::set_top_p), Field(&M::top_k, &P::top_k, &P::set_top_k),
      Field(&M::min_p, &P::min_p, &P::set_min_p),
      Field(&M::repetition_penalty, &P::repetition_penalty, &P::set_repetition_penalty),
      Field(&M::frequency_penalty, &P::frequency_penalty, &P::set_frequency_penalty),
      Field(&M::presence_penalty, &P::presence_penalty, &P::set_presence_penalty),
      Field(&M::seed, &P::seed, &P::set_seed),
      Field(&M::num_logprobs, &P::num_logprobs, &P::set_num_logprobs),
      Field(&M::logit_bias, &P::logit_bias, &P::mutable_logit_bias),
      Field(&M::banned, &P::banned_until_min, &P::mutable_banned_until_min),
      Field(&M::min_tokens, &P::min_tokens, &P::set_min_tokens),
      Field(&M::bad_words, &P::bad_words, &P::mutable_bad_words),
      Field(&M::allowed_tokens, &P::allowed_tokens, &P::mutable_allowed_tokens),
      Field(&M::grammar, &P::grammar, &P::mutable_grammar),
      Field(&M::num_prompt_logprobs, &P::num_prompt_logprobs, &P::set_num_prompt_logprobs),
      Field(&M::embeds, &P::embeds, &P::set_embeds));
}
constexpr auto FieldsOf(const NewSequence*) {
  using M = NewSequence;
  using P = control::NewSequence;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence),
                 Field(&M::sampling, &P::sampling, &P::mutable_sampling),
                 Field(&M::tokens, &P::tokens, &P::mutable_tokens),
                 Field(&M::num_prompt_tokens, &P::num_prompt_tokens, &P::set_num_prompt_tokens));
}
constexpr auto FieldsOf(const WorkPart*) {
  using M = WorkPart;
  using P = control::KvPart;
  return List<P>(Field(&M::node, &P::node_id, &P::set_node_id),
                 Field(&M::num_tokens, &P::num_tokens, &P::set_num_tokens),
                 Field(&M::slots, &P::slots, &P::mutable_slots),
                 Field(&M::shared, &P::shared, &P::mutable_shared));
}
constexpr auto FieldsOf(const ComputeWork*) {
  using M = ComputeWork;
  using P = control::ComputeWork;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence),
                 Field(&M::route, &P::route, &P::mutable_route),
                 Field(&M::first_position, &P::first_position, &P::set_first_position),
                 Field(&M::tokens, &P::tokens, &P::mutable_tokens),
                 Field(&M::prefill, &P::prefill, &P::set_prefill),
                 Field(&M::sample, &P::sample, &P::set_sample),
                 Field(&M::ends_prefill, &P::ends_prefill, &P::set_ends_prefill));
}
constexpr auto FieldsOf(const ComputeOrder*) {
  using M = ComputeOrder;
  using P = control::ComputeOrder;
  return List<P>(
      Field(&M::epoch, &P::epoch, &P::set_epoch), Field(&M::step, &P::step, &P::set_step),
      Field(&M::batch, &P::batch, &P::set_batch),
      Field(&M::released, &P::released, &P::mutable_released),
      Field(&M::new_sequences, &P::new_sequences, &P::mutable_new_sequences),
      Field(&M::work, &P::work, &P::mutable_work), Field(&M::rotates, &P::rotates, &P::set_rotates),
      Field(&M::dummy_prefill, &P::dummy_prefill, &P::set_dummy_prefill),
      Optional(&P::has_offload_interval,
               Field(&M::offload_interval, &P::offload_interval, &P::set_offload_interval)),
      Field(&M::layers_inside, &P::layers_inside, &P::set_layers_inside),
      Field(&M::no_times, &P::no_times, &P::set_no_times));
}
constexpr auto FieldsOf(const TokenLogprob*) {
  using M = TokenLogprob;
  using P = control::TokenLogprob;
  return List<P>(Field(&M::token, &P::token, &P::set_token),
                 Field(&M::logprob, &P::logprob, &P::set_logprob));
}
constexpr auto FieldsOf(const SampledToken*) {
  using M = SampledToken;
  using P = control::SampledToken;
  return List<P>(Field(&M::token, &P::token, &P::set_token),
                 Field(&M::logprob, &P::logprob, &P::set_logprob),
                 Field(&M::rank, &P::rank, &P::set_rank), Field(&M::top, &P::top, &P::mutable_top));
}
constexpr auto FieldsOf(const NewToken*) {
  using M = NewToken;
  using P = control::SampledToken;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence), Inner(&M::chosen));
}
constexpr auto FieldsOf(const TokenScore*) {
  using M = TokenScore;
  using P = control::TokenScore;
  return List<P>(Field(&M::token, &P::token, &P::set_token),
                 Field(&M::logprob, &P::logprob, &P::set_logprob),
                 Field(&M::rank, &P::rank, &P::set_rank), Field(&M::top, &P::top, &P::mutable_top));
}
constexpr auto FieldsOf(const ScoredTokens*) {
  using M = ScoredTokens;
  using P = control::ScoredTokens;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence),
                 Field(&M::first_position, &P::first_position, &P::set_first_position),
                 Field(&M::tokens, &P::tokens, &P::mutable_tokens));
}
constexpr auto FieldsOf(const EmbeddedPrompt*) {
  using M = EmbeddedPrompt;
  using P = control::EmbeddedPrompt;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence),
                 Field(&M::values, &P::values, &P::mutable_values));
}
constexpr auto FieldsOf(const FailedSequence*) {
  using M = FailedSequence;
  using P = control::FailedSequence;
  return List<P>(Field(&M::sequence, &P::sequence, &P::set_sequence), Inner(&M::why),
                 Field(&M::cause, &P::cause, &P::set_cause, "cause"));
}
constexpr auto FieldsOf(const LostNode*) {
  using M = LostNode;
  using P = control::LostPeer;
  return List<P>(Field(&M::node, &P::node_id, &P::set_node_id),
                 Field(&M::message, &P::message, &P::mutable_message));
}
constexpr auto FieldsOf(const SuspendedNode*) {
  using M = SuspendedNode;
  using P = control::SuspendedPeer;
  return List<P>(Field(&M::node, &P::node_id, &P::set_node_id), Field(&M::by, &P::by, &P::set_by),
                 Field(&M::suspension, &P::suspension, &P::set_suspension));
}
constexpr auto FieldsOf(const NodeTimes*) {
  using M = NodeTimes;
  using P = control::NodeTimes;
  return List<P>(Field(&M::node, &P::node_id, &P::set_node_id),
                 Field(&M::times, &P::ns, &P::mutable_ns));
}
constexpr auto FieldsOf(const StepResult*) {
  using M = StepResult;
  using P = control::StepResult;
  return List<P>(Field(&M::epoch, &P::epoch, &P::set_epoch),
                 Field(&M::step, &P::step, &P::set_step),
                 Field(&M::batch, &P::batch, &P::set_batch),
                 Field(&M::sampled, &P::sampled, &P::mutable_sampled),
                 Field(&M::scored, &P::scored, &P::mutable_scored),
                 Field(&M::embedded, &P::embedded, &P::mutable_embedded),
                 Field(&M::failed, &P::failed, &P::mutable_failed),
                 Field(&M::lost_nodes, &P::lost_peers, &P::mutable_lost_peers),
                 Field(&M::suspended, &P::suspended_peers, &P::mutable_suspended_peers),
                 Field(&M::late, &P::late, &P::mutable_late),
                 Optional(&P::has_layers_inside,
                          Field(&M::layers_inside, &P::layers_inside, &P::mutable_layers_inside)),
                 Field(&M::total_us, &P::total_us, &P::set_total_us),
                 Field(&M::attention_wait_us, &P::attention_wait_us, &P::set_attention_wait_us),
                 Field(&M::bytes_to_memory, &P::bytes_to_memory, &P::set_bytes_to_memory),
                 Field(&M::bytes_from_memory, &P::bytes_from_memory, &P::set_bytes_from_memory),
                 Field(&M::stale_messages, &P::stale_messages, &P::set_stale_messages),
                 Field(&M::times, &P::times, &P::mutable_times));
}
constexpr auto FieldsOf(const StepState*) {
  using M = StepState;
  using P = control::StepState;
  return List<P>(Optional(&P::has_so_far, Field(&M::so_far, &P::so_far, &P::mutable_so_far)),
                 Inner(&M::asked), Field(&M::clock, &P::clock, &P::set_clock));
}

}  // namespace lamina::codec
