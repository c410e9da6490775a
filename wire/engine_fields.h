// The lists of codec_fields.h for messages between a front and the manager.
#pragma once

#include <array>
#include <utility>

#include "base/node_role.h"
#include "base/node_state.h"
#include "wire/codec_fields.h"
#include "wire/control.pb.h"
#include "wire/engine_messages.h"

namespace lamina::codec {

constexpr auto ValuesOf(NodeRole) {
  return std::array{std::pair(NodeRole::kCompute, control::NODE_ROLE_COMPUTE),
                    std::pair(NodeRole::kMemory, control::NODE_ROLE_MEMORY)};
}
constexpr auto ValuesOf(NodeState) {
  return std::array{std::pair(NodeState::kReady, control::NODE_STATE_READY),
                    std::pair(NodeState::kSuspended, control::NODE_STATE_SUSPENDED),
                    std::pair(NodeState::kLost, control::NODE_STATE_LOST),
                    std::pair(NodeState::kReconnecting, control::NODE_STATE_RECONNECTING),
                    std::pair(NodeState::kGivenUp, control::NODE_STATE_GIVEN_UP),
                    std::pair(NodeState::kStandby, control::NODE_STATE_STANDBY)};
}
constexpr auto ValuesOf(FinishReason) {
  return std::array{std::pair(FinishReason::kStop, control::FINISH_REASON_STOP),
                    std::pair(FinishReason::kLength, control::FINISH_REASON_LENGTH),
                    std::pair(FinishReason::kAbort, control::FINISH_REASON_ABORT),
                    std::pair(FinishReason::kError, control::FINISH_REASON_ERROR)};
}

constexpr auto FieldsOf(const OpenFront*) {
  using M = OpenFront;
  using P = control::OpenFront;
  return List<P>(Field(&M::model, &P::model, &P::mutable_model),
                 Field(&M::vocab_size, &P::vocab_size, &P::set_vocab_size));
}
constexpr auto FieldsOf(const FrontOpened*) {
  using M = FrontOpened;
  using P = control::FrontOpened;
  return List<P>(Inner(&M::status),
                 Field(&M::max_model_len, &P::max_model_len, &P::set_max_model_len),
                 Field(&M::eos_tokens, &P::eos_tokens, &P::mutable_eos_tokens),
                 Field(&M::manager_id, &P::manager_id, &P::set_manager_id));
}
constexpr auto FieldsOf(const KvHandle*) {
  using M = KvHandle;
  using P = control::KvHandle;
  return List<P>(Field(&M::manager, &P::manager, &P::set_manager),
                 Field(&M::sequence, &P::sequence, &P::set_sequence));
}
constexpr auto FieldsOf(const Told*) {
  using M = Told;
  using P = control::Told;
  return List<P>(Field(&M::tokens, &P::tokens, &P::mutable_tokens),
                 Field(&M::num_cached, &P::num_cached, &P::set_num_cached),
                 Field(&M::over, &P::over, &P::set_over), Field(&M::kv, &P::kv, &P::mutable_kv),
                 Field(&M::num_scored, &P::num_scored, &P::set_num_scored));
}
constexpr auto FieldsOf(const Slo*) {
  using M = Slo;
  using P = control::Slo;
  return List<P>(Field(&M::ttft, &P::ttft_ns, &P::set_ttft_ns),
                 Field(&M::tpot, &P::tpot_ns, &P::set_tpot_ns));
}
constexpr auto FieldsOf(const GenerateRequest*) {
  using M = GenerateRequest;
  using P = control::GenerateRequest;
  return List<P>(Field(&M::prompt, &P::prompt, &P::mutable_prompt), Field(&M::n, &P::n, &P::set_n),
                 Field(&M::prefix_group, &P::prefix_group, &P::set_prefix_group),
                 Field(&M::max_new_tokens, &P::max_new_tokens, &P::set_max_new_tokens),
                 Field(&M::ignore_eos, &P::ignore_eos, &P::set_ignore_eos),
                 Field(&M::stop_tokens, &P::stop_tokens, &P::mutable_stop_tokens),
                 Field(&M::prompt_index, &P::prompt_index, &P::set_prompt_index),
                 Field(&M::sampling, &P::sampling, &P::mutable_sampling),
                 Field(&M::told, &P::told, &P::mutable_told),
                 Field(&M::priority, &P::priority, &P::set_priority),
                 Field(&M::slo, &P::slo, &P::mutable_slo));
}
constexpr auto FieldsOf(const SubmitRequest*) {
  using M = SubmitRequest;
  using P = control::SubmitRequest;
  return List<P>(Field(&M::id, &P::id, &P::set_id),
                 Field(&M::request, &P::request, &P::mutable_request));
}
constexpr auto FieldsOf(const RequestSubmitted*) {
  using M = RequestSubmitted;
  using P = control::RequestSubmitted;
  return List<P>(Field(&M::id, &P::id, &P::set_id), Inner(&M::status));
}
constexpr auto FieldsOf(const AbortRequest*) {
  using M = AbortRequest;
  using P = control::AbortRequest;
  return List<P>(Field(&M::id, &P::id, &P::set_id));
}
constexpr auto FieldsOf(const StopContinuation*) {
  using M = StopContinuation;
  using P = control::StopContinuation;
  return List<P>(Field(&M::id, &P::id, &P::set_id), Field(&M::index, &P::index, &P::set_index));
}
constexpr auto FieldsOf(const TokenEvent*) {
  using M = TokenEvent;
  using P = control::TokenEvent;
  return List<P>(
      Field(&M::index, &P::index, &P::set_index),
      Optional(&P::has_token, Field(&M::token, &P::token, &P::set_token)),
      Field(&M::logprob, &P::logprob, &P::set_logprob), Field(&M::rank, &P::rank, &P::set_rank),
      Field(&M::top, &P::top, &P::mutable_top),
      Optional(&P::has_finish, Field(&M::finish, &P::finish, &P::set_finish, "finish")),
      Optional(&P::has_stop_token, Field(&M::stop_token, &P::stop_token, &P::set_stop_token)),
      Inner(&M::error), Field(&M::first, &P::first, &P::set_first),
      Field(&M::num_cached, &P::num_cached, &P::set_num_cached),
      Field(&M::sequence, &P::sequence, &P::set_sequence),
      Field(&M::scored, &P::scored, &P::mutable_scored),
      Field(&M::embedding, &P::embedding, &P::mutable_embedding));
}
constexpr auto FieldsOf(const RequestEvent*) {
  using M = RequestEvent;
  using P = control::RequestEvent;
  return List<P>(Field(&M::id, &P::id, &P::set_id), Field(&M::event, &P::event, &P::mutable_event));
}
constexpr auto FieldsOf(const RequestEvents*) {
  using M = RequestEvents;
  using P = control::RequestEvents;
  return List<P>(Field(&M::events, &P::events, &P::mutable_events));
}
constexpr auto FieldsOf(const DataPathStatus*) {
  using M = DataPathStatus;
  using P = control::DataPathStatus;
  return List<P>(Field(&M::from, &P::from, &P::mutable_from),
                 Field(&M::fabric, &P::fabric, &P::mutable_fabric),
                 Field(&M::through, &P::through, &P::mutable_through),
                 Field(&M::refused, &P::refused, &P::mutable_refused));
}
constexpr auto FieldsOf(const NodeStatus*) {
  using M = NodeStatus;
  using P = control::NodeStatus;
  return List<P>(Field(&M::id, &P::id, &P::set_id), Field(&M::name, &P::name, &P::mutable_name),
                 Field(&M::role, &P::role, &P::set_role, "role"),
                 Field(&M::address, &P::address, &P::mutable_address),
                 Field(&M::state, &P::state, &P::set_state, "state"),
                 Field(&M::detail, &P::detail, &P::mutable_detail),
                 Field(&M::kv_heads, &P::kv_heads, &P::mutable_kv_heads),
                 Field(&M::holds, &P::holds, &P::mutable_holds),
                 Field(&M::weight_bytes, &P::weight_bytes, &P::set_weight_bytes),
                 Field(&M::transport, &P::transport, &P::mutable_transport),
                 Field(&M::transport_refused, &P::transport_refused, &P::mutable_transport_refused),
                 Field(&M::capacity_tokens, &P::capacity_tokens, &P::set_capacity_tokens),
                 Field(&M::used_tokens, &P::used_tokens, &P::set_used_tokens),
                 Field(&M::num_sequences, &P::num_sequences, &P::set_num_sequences),
                 Field(&M::stored_tokens, &P::stored_tokens, &P::set_stored_tokens),
                 Field(&M::stored_sequences, &P::stored_sequences, &P::set_stored_sequences),
                 Field(&M::stale_messages, &P::stale_messages, &P::set_stale_messages),
                 Field(&M::attention_us, &P::attention_us, &P::set_attention_us),
                 Field(&M::times, &P::ns, &P::mutable_ns),
                 Field(&M::paths, &P::paths, &P::mutable_paths));
}
constexpr auto FieldsOf(const NodeUse*) {
  using M = NodeUse;
  using P = control::NodeUse;
  return List<P>(Field(&M::id, &P::id, &P::set_id),
                 Field(&M::capacity_tokens, &P::capacity_tokens, &P::set_capacity_tokens),
                 Field(&M::used_tokens, &P::used_tokens, &P::set_used_tokens),
                 Field(&M::cached_tokens, &P::cached_tokens, &P::set_cached_tokens),
                 Field(&M::num_sequences, &P::num_sequences, &P::set_num_sequences));
}
constexpr auto FieldsOf(const SchedulerStats*) {
  using M = SchedulerStats;
  using P = control::SchedulerStats;
  return List<P>(Field(&M::num_running, &P::num_running, &P::set_num_running),
                 Field(&M::num_waiting, &P::num_waiting, &P::set_num_waiting),
                 Field(&M::num_parked, &P::num_parked, &P::set_num_parked),
                 Field(&M::num_suspended, &P::num_suspended, &P::set_num_suspended),
                 Field(&M::num_preemptions, &P::num_preemptions, &P::set_num_preemptions),
                 Field(&M::num_started_tokens, &P::num_started_tokens, &P::set_num_started_tokens),
                 Field(&M::num_shared_tokens, &P::num_shared_tokens, &P::set_num_shared_tokens),
                 Field(&M::num_left_tokens, &P::num_left_tokens, &P::set_num_left_tokens),
                 Field(&M::nodes, &P::nodes, &P::mutable_nodes));
}
constexpr auto FieldsOf(const EngineStatus*) {
  using M = EngineStatus;
  using P = control::EngineStatus;
  return List<P>(Field(&M::serving, &P::serving, &P::set_serving),
                 Field(&M::stands_still, &P::stands_still, &P::set_stands_still),
                 Field(&M::given_up, &P::given_up, &P::set_given_up),
                 Field(&M::num_rebuilding, &P::num_rebuilding, &P::set_num_rebuilding),
                 Field(&M::detail, &P::detail, &P::mutable_detail),
                 Field(&M::nodes, &P::nodes, &P::mutable_nodes),
                 Field(&M::standbys, &P::standbys, &P::mutable_standbys),
                 Field(&M::scheduler, &P::scheduler, &P::mutable_scheduler));
}

}  // namespace lamina::codec
