#include "compute_node/step_runner.h"

#include <algorithm>

#include "base/clock.h"

namespace lamina {
namespace {

SamplingParams FromProto(const control::SamplingParams& proto) {
  SamplingParams params;
  params.temperature = proto.temperature();
  params.top_p = proto.top_p();
  params.top_k = proto.top_k();
  params.min_p = proto.min_p();
  params.repetition_penalty = proto.repetition_penalty();
  params.frequency_penalty = proto.frequency_penalty();
  params.presence_penalty = proto.presence_penalty();
  params.seed = proto.seed();
  params.num_logprobs = proto.num_logprobs();
  for (const control::LogitBias& bias : proto.logit_bias()) params.logit_bias.emplace_back(bias.token(), bias.bias());
  params.banned.assign(proto.banned_until_min().begin(), proto.banned_until_min().end());
  params.min_tokens = proto.min_tokens();
  return params;
}

void AddFailure(SequenceId sequence, const Status& status, control::StepResult& result) {
  control::FailedSequence& failed = *result.add_failed();
  failed.set_sequence(sequence.value);
  failed.set_status(static_cast<uint32_t>(status.code()));
  failed.set_message(status.message());
}

}  // namespace

StepRunner::StepRunner(const LoadedModel& model, const control::Limits& limits, std::unique_ptr<AttentionBackend> attention,
                       ComputeDevice& device, WorkerTeam& team)
    : model_(model),
      limits_(limits),
      team_(team),
      attention_(std::move(attention)),
      batches_(static_cast<size_t>(std::max(limits.num_batches(), 1))) {
  for (Batch& batch : batches_) batch.slices = device.MakeSlices(model, limits.max_num_batched_tokens());
}

Status StepRunner::Begin(const control::ComputeOrder& order) {
  if (order.batch() >= batches_.size() || batches_[order.batch()].under_way)
    return InvalidArgument("an order for batch " + std::to_string(order.batch()) + ", which is not there or has a step under way");
  Batch& batch = batches_[order.batch()];
  batch.start = Clock::now();
  batch.result.Clear();
  batch.result.set_epoch(order.epoch());
  batch.result.set_step(order.step());
  batch.result.set_batch(order.batch());
  UpdateSequences(order);
  batch.failures.clear();
  batch.rows = Collect(order, batch.failures);
  attention_->BeginStep(static_cast<int>(order.batch()), StepId{order.step()}, batch.rows.attention);
  batch.slices->Begin(batch.rows.tokens, batch.rows.positions);
  batch.next_slice = 0;
  batch.under_way = true;
  ++num_under_way_;
  return OkStatus();
}

bool StepRunner::Advance(std::vector<control::StepResult>& results) {
  const int num_batches = static_cast<int>(batches_.size());
  for (int i = 1; i <= num_batches; ++i) {
    const int number = (last_ + i) % num_batches;
    Batch& batch = batches_[static_cast<size_t>(number)];
    if (!batch.under_way || (batch.next_slice > 0 && !attention_->Finish(number))) continue;
    last_ = number;
    RunSlice(number);
    if (batch.next_slice == static_cast<int>(model_.sliced.slices.size())) results.push_back(End(number));
    return true;
  }
  return false;
}

void StepRunner::RunSlice(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const int k = batch.next_slice++;
  const Slice& slice = model_.sliced.slices[static_cast<size_t>(k)];
  const bool is_last = slice.attention < 0;
  if (is_last) batch.slices->KeepRows(k, batch.rows.sampled);
  if (is_last) return batch.slices->Run(k);
  const Op& attention = model_.sliced.attentions[static_cast<size_t>(slice.attention)];
  if (attention_->takes_queries_first()) {
    batch.slices->RunToQueries(k);
    attention_->StartQueries(number, attention.layer, batch.slices->value(slice.q));
  }
  batch.slices->Run(k);
  attention_->Start(number, attention.layer, batch.slices->value(slice.q), batch.slices->value(slice.k), batch.slices->value(slice.v),
                    batch.slices->value(attention.output));
}

control::StepResult StepRunner::End(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  attention_->EndStep(number);
  batch.failures.insert(attention_->failures(number).begin(), attention_->failures(number).end());
  for (const int row : batch.rows.sampled) {
    const SequenceId sequence = batch.rows.attention[static_cast<size_t>(row)].sequence;
    if (!sequences_.contains(sequence)) batch.failures.emplace(sequence, InternalError("it was released while its step was under way"));
  }
  SampleRows(batch);
  control::StepResult& result = batch.result;
  for (const auto& [sequence, status] : batch.failures) AddFailure(sequence, status, result);
  for (const LostNode& lost : attention_->TakeLostNodes()) {
    control::LostPeer& peer = *result.add_lost_peers();
    peer.set_node_id(lost.node.value);
    peer.set_message(lost.message);
  }
  const AttentionBackend::Traffic traffic = attention_->traffic(number);
  result.set_attention_wait_us(traffic.wait_us);
  result.set_bytes_to_memory(traffic.sent_bytes);
  result.set_bytes_from_memory(traffic.received_bytes);
  result.set_stale_messages(traffic.stale_messages);
  result.set_total_us(std::chrono::duration_cast<microseconds>(Clock::now() - batch.start).count());
  batch.under_way = false;
  --num_under_way_;
  return std::move(result);
}

void StepRunner::UpdateSequences(const control::ComputeOrder& order) {
  for (const uint64_t released : order.released()) {
    sequences_.erase(SequenceId{released});
    attention_->Release(SequenceId{released});
  }
  for (const control::NewSequence& added : order.new_sequences()) {
    Sequence& sequence = sequences_[SequenceId{added.sequence()}];
    sequence.tokens.assign(added.tokens().begin(), added.tokens().end());
    sequence.num_prompt = static_cast<size_t>(std::clamp(added.num_prompt_tokens(), 0, added.tokens_size()));
    sequence.sampling = FromProto(added.sampling());
  }
}

// An order comes from another process: what it says is held against what this node knows.
Status StepRunner::Check(const control::ComputeWork& work) const {
  const auto found = sequences_.find(SequenceId{work.sequence()});
  if (found == sequences_.end()) return InternalError("the order names a sequence that was not announced");
  const std::vector<TokenId>& known = found->second.tokens;
  const int64_t end = work.first_position() + work.tokens_size();
  if (work.tokens_size() == 0 || work.first_position() < 0 || end > static_cast<int64_t>(known.size()) || end > limits_.max_model_len()) {
    return InternalError("the order's positions " + std::to_string(work.first_position()) + ".." + std::to_string(end) +
                         " do not fit a sequence of " + std::to_string(known.size()) + " tokens");
  }
  int64_t num_routed = 0;
  for (const control::KvPart& part : work.route()) num_routed += part.num_tokens();
  if (num_routed != work.tokens_size()) return InternalError("the order's route has no place for some tokens");
  for (int i = 0; i < work.tokens_size(); ++i) {
    if (work.tokens(i) != known[static_cast<size_t>(work.first_position() + i)])
      return InternalError("the order's tokens are not the sequence's");
    if (work.tokens(i) < 0 || work.tokens(i) >= model_.config.vocab_size)
      return InternalError("the order has a token outside the vocabulary");
  }
  return OkStatus();
}

StepRunner::Rows StepRunner::Collect(const control::ComputeOrder& order, Failures& failures) const {
  Rows rows;
  for (const control::ComputeWork& work : order.work()) {
    const SequenceId sequence{work.sequence()};
    Status status = Check(work);
    const int64_t room = limits_.max_num_batched_tokens() - static_cast<int64_t>(rows.tokens.size());
    if (status.ok() && work.tokens_size() > room) status = InternalError("the order has more rows than max_num_batched_tokens");
    if (status.ok() && !rows.attention.empty() && rows.attention.back().prefill && !work.prefill()) {
      status = InternalError("the order has a decode row behind a prefill row");
    }
    if (!status.ok()) {
      failures.emplace(sequence, std::move(status));
      continue;
    }
    AddRows(work, rows);
    if (work.sample()) rows.sampled.push_back(static_cast<int>(rows.tokens.size()) - 1);
  }
  return rows;
}

void StepRunner::AddRows(const control::ComputeWork& work, Rows& rows) {
  int64_t position = work.first_position();
  for (const int32_t token : work.tokens()) {
    rows.tokens.push_back(token);
    rows.positions.push_back(static_cast<int32_t>(position++));
  }
  position = work.first_position();
  for (const control::KvPart& part : work.route()) {
    for (int i = 0; i < part.num_tokens(); ++i) {
      const TokenSlot slot = i < part.slots_size() ? part.slots(i) : 0;
      rows.attention.push_back({SequenceId{work.sequence()}, NodeId{part.node_id()}, position++, slot, work.prefill(), work.sample()});
    }
  }
  if (work.prefill()) return;
  for (const control::KvPart& part : work.route()) {
    if (part.num_tokens() == 0) rows.attention.back().also_on.push_back(NodeId{part.node_id()});
  }
}

void StepRunner::SampleRows(Batch& batch) {
  const Rows& rows = batch.rows;
  const Failures& failures = batch.failures;
  control::StepResult& result = batch.result;
  const auto sequence_of = [&](size_t i) { return rows.attention[static_cast<size_t>(rows.sampled[i])].sequence; };
  std::vector<SampledToken> tokens(rows.sampled.size());
  team_.ParallelFor(static_cast<int64_t>(tokens.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      if (failures.contains(sequence_of(i))) continue;
      const Sequence& sequence = sequences_.at(sequence_of(i));
      const std::span<const TokenId> all(sequence.tokens);
      tokens[i] = batch.slices->Sample(i, sequence.sampling, {all.first(sequence.num_prompt), all.subspan(sequence.num_prompt)});
    }
  });
  for (size_t i = 0; i < tokens.size(); ++i) {
    const SequenceId id = sequence_of(i);
    if (failures.contains(id)) continue;
    if (tokens[i].token < 0) {
      AddFailure(id, InternalError("the model gave logits that are not numbers"), result);
      continue;
    }
    sequences_.at(id).tokens.push_back(tokens[i].token);
    control::SampledToken& sampled = *result.add_sampled();
    sampled.set_sequence(id.value);
    sampled.set_token(tokens[i].token);
    sampled.set_logprob(tokens[i].logprob);
    sampled.set_rank(tokens[i].rank);
    for (const TokenLogprob& top : tokens[i].top) {
      control::TokenLogprob& entry = *sampled.add_top();
      entry.set_token(top.token);
      entry.set_logprob(top.logprob);
    }
  }
}

}  // namespace lamina
