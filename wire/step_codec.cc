#include <algorithm>
#include <cstdint>

#include "wire/codec.h"
#include "wire/codec_scratch.h"
#include "wire/control.pb.h"

namespace lamina {
namespace {

template <typename Repeated>
void WriteIds(const std::vector<SequenceId>& ids, Repeated& repeated) {
  repeated.Reserve(static_cast<int>(ids.size()));
  for (const SequenceId id : ids) repeated.Add(id.value);
}

template <typename Repeated>
void ReadIds(const Repeated& repeated, std::vector<SequenceId>& ids) {
  ids.reserve(static_cast<size_t>(repeated.size()));
  for (const uint64_t id : repeated) ids.push_back(SequenceId{id});
}

void Write(const SharedPrefix& shared, control::SharedPrefix& proto) {
  proto.set_sequence(shared.sequence.value);
  WriteNumbers(shared.slots, *proto.mutable_slots());
}

Status Read(const control::SharedPrefix& proto, SharedPrefix& shared) {
  shared.sequence = SequenceId{proto.sequence()};
  ReadNumbers(proto.slots(), shared.slots);
  return OkStatus();
}

void Write(const DecodeRow& row, control::DecodeRow& proto) {
  proto.set_sequence(row.sequence.value);
  proto.set_num_stored(row.num_stored);
  if (row.slot) proto.set_slot(*row.slot);
  proto.set_position(row.position);
}

Status Read(const control::DecodeRow& proto, DecodeRow& row) {
  row.sequence = SequenceId{proto.sequence()};
  row.num_stored = proto.num_stored();
  if (proto.has_slot()) row.slot = proto.slot();
  row.position = proto.position();
  return OkStatus();
}

void Write(const PrefillChunk& chunk, control::PrefillChunk& proto) {
  proto.set_sequence(chunk.sequence.value);
  proto.set_num_stored(chunk.num_stored);
  WriteNumbers(chunk.slots, *proto.mutable_slots());
  proto.set_first_position(chunk.first_position);
}

Status Read(const control::PrefillChunk& proto, PrefillChunk& chunk) {
  chunk.sequence = SequenceId{proto.sequence()};
  chunk.num_stored = proto.num_stored();
  ReadNumbers(proto.slots(), chunk.slots);
  chunk.first_position = proto.first_position();
  return OkStatus();
}

void Write(const MemoryOrder& order, control::MemoryOrder& proto) {
  proto.set_epoch(order.epoch);
  proto.set_step(order.step.value);
  proto.set_batch(order.batch);
  WriteIds(order.released, *proto.mutable_released());
  for (const SharedPrefix& shared : order.shared) Write(shared, *proto.add_shared());
  for (const DecodeRow& row : order.decode) Write(row, *proto.add_decode());
  for (const PrefillChunk& chunk : order.prefill) Write(chunk, *proto.add_prefill());
  proto.set_dummy_prefill(order.dummy_prefill);
}

Status Read(const control::MemoryOrder& proto, MemoryOrder& order) {
  order.epoch = proto.epoch();
  order.step = StepId{proto.step()};
  order.batch = proto.batch();
  ReadIds(proto.released(), order.released);
  order.dummy_prefill = proto.dummy_prefill();
  const auto read = [](const auto& from, auto& to) { return Read(from, to); };
  LAMINA_RETURN_IF_ERROR(ReadMessages(proto.shared(), order.shared, read));
  LAMINA_RETURN_IF_ERROR(ReadMessages(proto.decode(), order.decode, read));
  return ReadMessages(proto.prefill(), order.prefill, read);
}

void Write(const SamplingParams& params, control::SamplingParams& proto) {
  proto.set_temperature(params.temperature);
  proto.set_top_p(params.top_p);
  proto.set_top_k(params.top_k);
  proto.set_min_p(params.min_p);
  proto.set_repetition_penalty(params.repetition_penalty);
  proto.set_frequency_penalty(params.frequency_penalty);
  proto.set_presence_penalty(params.presence_penalty);
  proto.set_seed(params.seed);
  proto.set_num_logprobs(params.num_logprobs);
  for (const auto& [token, bias] : params.logit_bias) {
    control::LogitBias& entry = *proto.add_logit_bias();
    entry.set_token(token);
    entry.set_bias(bias);
  }
  WriteNumbers(params.banned, *proto.mutable_banned_until_min());
  proto.set_min_tokens(params.min_tokens);
}

void Read(const control::SamplingParams& proto, SamplingParams& params) {
  params.temperature = proto.temperature();
  params.top_p = proto.top_p();
  params.top_k = proto.top_k();
  params.min_p = proto.min_p();
  params.repetition_penalty = proto.repetition_penalty();
  params.frequency_penalty = proto.frequency_penalty();
  params.presence_penalty = proto.presence_penalty();
  params.seed = proto.seed();
  params.num_logprobs = proto.num_logprobs();
  for (const control::LogitBias& bias : proto.logit_bias())
    params.logit_bias.emplace_back(bias.token(), bias.bias());
  ReadNumbers(proto.banned_until_min(), params.banned);
  params.min_tokens = proto.min_tokens();
}

void Write(const NewSequence& added, control::NewSequence& proto) {
  proto.set_sequence(added.sequence.value);
  Write(added.sampling, *proto.mutable_sampling());
  WriteNumbers(added.tokens, *proto.mutable_tokens());
  proto.set_num_prompt_tokens(added.num_prompt_tokens);
}

Status Read(const control::NewSequence& proto, NewSequence& added) {
  added.sequence = SequenceId{proto.sequence()};
  Read(proto.sampling(), added.sampling);
  ReadNumbers(proto.tokens(), added.tokens);
  added.num_prompt_tokens = proto.num_prompt_tokens();
  return OkStatus();
}

void Write(const WorkPart& part, control::KvPart& proto) {
  proto.set_node_id(part.node.value);
  proto.set_num_tokens(part.num_tokens);
  WriteNumbers(part.slots, *proto.mutable_slots());
  WriteNumbers(part.shared, *proto.mutable_shared());
}

Status Read(const control::KvPart& proto, WorkPart& part) {
  part.node = NodeId{proto.node_id()};
  part.num_tokens = proto.num_tokens();
  ReadNumbers(proto.slots(), part.slots);
  ReadNumbers(proto.shared(), part.shared);
  return OkStatus();
}

void Write(const ComputeWork& work, control::ComputeWork& proto) {
  proto.set_sequence(work.sequence.value);
  for (const WorkPart& part : work.route) Write(part, *proto.add_route());
  proto.set_first_position(work.first_position);
  WriteNumbers(work.tokens, *proto.mutable_tokens());
  proto.set_prefill(work.prefill);
  proto.set_sample(work.sample);
}

Status Read(const control::ComputeWork& proto, ComputeWork& work) {
  work.sequence = SequenceId{proto.sequence()};
  work.first_position = proto.first_position();
  ReadNumbers(proto.tokens(), work.tokens);
  work.prefill = proto.prefill();
  work.sample = proto.sample();
  return ReadMessages(proto.route(), work.route,
                      [](const auto& from, auto& to) { return Read(from, to); });
}

void Write(const ComputeOrder& order, control::ComputeOrder& proto) {
  proto.set_epoch(order.epoch);
  proto.set_step(order.step.value);
  proto.set_batch(order.batch);
  WriteIds(order.released, *proto.mutable_released());
  for (const NewSequence& added : order.new_sequences) Write(added, *proto.add_new_sequences());
  for (const ComputeWork& work : order.work) Write(work, *proto.add_work());
  proto.set_rotates(order.rotates);
  proto.set_dummy_prefill(order.dummy_prefill);
  proto.set_no_times(order.no_times);
}

Status Read(const control::ComputeOrder& proto, ComputeOrder& order) {
  order.epoch = proto.epoch();
  order.step = StepId{proto.step()};
  order.batch = proto.batch();
  ReadIds(proto.released(), order.released);
  order.rotates = proto.rotates();
  order.dummy_prefill = proto.dummy_prefill();
  order.no_times = proto.no_times();
  const auto read = [](const auto& from, auto& to) { return Read(from, to); };
  LAMINA_RETURN_IF_ERROR(ReadMessages(proto.new_sequences(), order.new_sequences, read));
  return ReadMessages(proto.work(), order.work, read);
}

void Write(const NewToken& token, control::SampledToken& proto) {
  proto.set_sequence(token.sequence.value);
  proto.set_token(token.chosen.token);
  proto.set_logprob(token.chosen.logprob);
  proto.set_rank(token.chosen.rank);
  for (const TokenLogprob& top : token.chosen.top) {
    control::TokenLogprob& told = *proto.add_top();
    told.set_token(top.token);
    told.set_logprob(top.logprob);
  }
}

Status Read(const control::SampledToken& proto, NewToken& token) {
  token.sequence = SequenceId{proto.sequence()};
  token.chosen.token = proto.token();
  token.chosen.logprob = proto.logprob();
  token.chosen.rank = proto.rank();
  token.chosen.top.reserve(static_cast<size_t>(proto.top_size()));
  for (const control::TokenLogprob& top : proto.top())
    token.chosen.top.push_back({top.token(), top.logprob()});
  return OkStatus();
}

void Write(const FailedSequence& failed, control::FailedSequence& proto) {
  proto.set_sequence(failed.sequence.value);
  proto.set_status(static_cast<uint32_t>(failed.why.code()));
  proto.set_message(failed.why.message());
}

Status Read(const control::FailedSequence& proto, FailedSequence& failed) {
  failed.sequence = SequenceId{proto.sequence()};
  return ReadStatus(proto.status(), proto.message(), failed.why);
}

void Write(const LostNode& lost, control::LostPeer& proto) {
  proto.set_node_id(lost.node.value);
  proto.set_message(lost.message);
}

Status Read(const control::LostPeer& proto, LostNode& lost) {
  lost.node = NodeId{proto.node_id()};
  lost.message = proto.message();
  return OkStatus();
}

void Write(const NodeTimes& told, control::NodeTimes& proto) {
  proto.set_node_id(told.node.value);
  WriteNumbers(told.times.ns, *proto.mutable_ns());
}

// Leaves out the kinds of work that this build does not know.
Status Read(const control::NodeTimes& proto, NodeTimes& told) {
  told.node = NodeId{proto.node_id()};
  const auto known = std::min<std::ptrdiff_t>(proto.ns_size(), std::ssize(told.times.ns));
  std::copy_n(proto.ns().begin(), known, told.times.ns.begin());
  return OkStatus();
}

void Write(const StepResult& result, control::StepResult& proto) {
  proto.set_epoch(result.epoch);
  proto.set_step(result.step.value);
  proto.set_batch(result.batch);
  for (const NewToken& token : result.sampled) Write(token, *proto.add_sampled());
  for (const FailedSequence& failed : result.failed) Write(failed, *proto.add_failed());
  for (const LostNode& lost : result.lost_nodes) Write(lost, *proto.add_lost_peers());
  proto.set_total_us(result.total_us);
  proto.set_attention_wait_us(result.attention_wait_us);
  proto.set_bytes_to_memory(result.bytes_to_memory);
  proto.set_bytes_from_memory(result.bytes_from_memory);
  proto.set_stale_messages(result.stale_messages);
  for (const NodeTimes& told : result.times) Write(told, *proto.add_times());
}

Status Read(const control::StepResult& proto, StepResult& result) {
  result.epoch = proto.epoch();
  result.step = StepId{proto.step()};
  result.batch = proto.batch();
  result.total_us = proto.total_us();
  result.attention_wait_us = proto.attention_wait_us();
  result.bytes_to_memory = proto.bytes_to_memory();
  result.bytes_from_memory = proto.bytes_from_memory();
  result.stale_messages = proto.stale_messages();
  const auto read = [](const auto& from, auto& to) { return Read(from, to); };
  LAMINA_RETURN_IF_ERROR(ReadMessages(proto.sampled(), result.sampled, read));
  LAMINA_RETURN_IF_ERROR(ReadMessages(proto.failed(), result.failed, read));
  LAMINA_RETURN_IF_ERROR(ReadMessages(proto.lost_peers(), result.lost_nodes, read));
  return ReadMessages(proto.times(), result.times, read);
}

void Write(const StepState& state, control::StepState& proto) {
  if (state.so_far) Write(*state.so_far, *proto.mutable_so_far());
  for (const StepState::Asked& asked : state.asked) {
    proto.add_asked(asked.node.value);
    proto.add_posted_ns(asked.posted_ns);
  }
  proto.set_clock(state.clock);
}

Status Read(const control::StepState& proto, StepState& state) {
  for (int i = 0; i < proto.asked_size() && i < proto.posted_ns_size(); ++i)
    state.asked.push_back({NodeId{proto.asked(i)}, proto.posted_ns(i)});
  state.clock = proto.clock();
  return proto.has_so_far() ? Read(proto.so_far(), state.so_far.emplace()) : OkStatus();
}

template <typename Message>
struct ProtoOf;
template <>
struct ProtoOf<MemoryOrder> : std::type_identity<control::MemoryOrder> {};
template <>
struct ProtoOf<ComputeOrder> : std::type_identity<control::ComputeOrder> {};
template <>
struct ProtoOf<StepResult> : std::type_identity<control::StepResult> {};
template <>
struct ProtoOf<StepState> : std::type_identity<control::StepState> {};

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

template std::string Encode(const MemoryOrder&);
template std::string Encode(const ComputeOrder&);
template std::string Encode(const StepResult&);
template std::string Encode(const StepState&);
template Result<MemoryOrder> Decode(std::string_view);
template Result<ComputeOrder> Decode(std::string_view);
template Result<StepResult> Decode(std::string_view);
template Result<StepState> Decode(std::string_view);

std::optional<size_t> EncodeInto(const StepState& state, std::span<std::byte> room) {
  CodecScratch scratch;
  control::StepState& proto = scratch.Make<control::StepState>();
  Write(state, proto);
  const size_t bytes = proto.ByteSizeLong();
  if (bytes > room.size()) return std::nullopt;
  proto.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(room.data()));
  return bytes;
}

}  // namespace lamina
