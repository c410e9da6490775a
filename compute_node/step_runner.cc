#include "compute_node/step_runner.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "compute_node/step_context.h"

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
  for (const control::LogitBias& bias : proto.logit_bias())
    params.logit_bias.emplace_back(bias.token(), bias.bias());
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

void AddLostPeer(const LostNode& lost, control::StepResult& result) {
  control::LostPeer& peer = *result.add_lost_peers();
  peer.set_node_id(lost.node.value);
  peer.set_message(lost.message);
}

}  // namespace

Result<std::unique_ptr<StepRunner>> StepRunner::Create(const LoadedModel& model,
                                                       const control::Limits& limits,
                                                       std::unique_ptr<AttentionStrategy> attention,
                                                       ComputeDevice& device) {
  std::unique_ptr<StepRunner> runner(new StepRunner(model, limits, std::move(attention), device));
  for (Batch& batch : runner->batches_) {
    LAMINA_ASSIGN_OR_RETURN(batch.slices,
                            device.MakeSlices(model, limits.max_num_batched_tokens()));
  }
  return runner;
}

StepRunner::StepRunner(const LoadedModel& model, const control::Limits& limits,
                       std::unique_ptr<AttentionStrategy> attention, ComputeDevice& device)
    : model_(model),
      limits_(limits),
      attention_(std::move(attention)),
      device_(device),
      batches_(static_cast<size_t>(std::max(limits.num_batches(), 1))) {
  attention_->TraceTo(trace_);
}

// A rank that waits for a lost memory node is late itself, but not lost. It may wait for each of
// its memory nodes once, and then for rows of other batches, so sums are waited for that many times
// as long.
void StepRunner::JoinOthers(std::unique_ptr<ContextExchange> others, DType wire_dtype) {
  others_ = std::move(others);
  wire_dtype_ = wire_dtype;
  attention_->WhileWaiting(others_->sign_interval(), [this] { others_->Poll(); });
  if (model_.share.num_ranks == 1) return;
  const auto waits = static_cast<int64_t>(attention_->paths().size()) + 1;
  sums_ = std::make_unique<AllReduce>(*others_, device_, model_, wire_dtype,
                                      static_cast<int>(batches_.size()),
                                      milliseconds(waits * limits_.peer_timeout_ms()));
}

Status StepRunner::Begin(const control::ComputeOrder& order) {
  if (order.batch() >= batches_.size() || batches_[order.batch()].under_way)
    return InvalidArgument("an order for batch " + std::to_string(order.batch()) +
                           ", which is not there or has a step under way");
  if (!model_.share.whole() && others_ == nullptr)
    return InvalidArgument("an order before this node has joined those with the rest of the model");
  const int number = static_cast<int>(order.batch());
  Batch& batch = batches_[order.batch()];
  UpdateSequences(order);
  batch.rotates = order.rotates();
  batch.next_slice = 0;
  const int num_slices = static_cast<int>(model_.sliced.slices.size());
  while (batch.next_slice < num_slices && !RunsHere(number, batch.next_slice)) ++batch.next_slice;
  if (batch.next_slice == num_slices) return OkStatus();  // others carry it out
  batch.start = batch.waits_since = Clock::now();
  trace_.BeginStep(!order.no_times());
  batch.start_ns = trace_.Now();
  batch.result.Clear();
  batch.result.set_epoch(order.epoch());
  batch.result.set_step(order.step());
  batch.result.set_batch(order.batch());
  batch.counted = {};
  batch.failures.clear();
  batch.rows = Collect(order, batch.failures);
  const std::vector<AttentionWork>& rows = batch.rows.attention;
  batch.first_prefill =
      static_cast<size_t>(std::ranges::find_if(rows, &AttentionWork::prefill) - rows.begin());
  batch.attention = &attention_->Begin({order.batch(), StepId{order.step()}, rows});
  batch.slices->Begin(batch.rows.tokens, batch.rows.positions);
  batch.has_context = batch.sent_queries = false;
  if (sums_ != nullptr) sums_->Forget(number);
  batch.under_way = true;
  ++num_under_way_;
  return OkStatus();
}

bool StepRunner::Advance(std::vector<control::StepResult>& results) {
  if (others_ != nullptr) {
    attention_->Poll();
    others_->Poll();
    if (others_->lost() && !idle()) {
      AbandonAll(*others_->lost(), results);
      return true;
    }
  }
  const int number = NextReady();
  if (number < 0) return false;
  last_ = number;
  if (RunSlice(number)) results.push_back(End(number));
  return true;
}

// Batches take turns. But where they rotate, a step's first slice goes before everything else that
// is ready: it is shorter than the others, so it is done here, and its attention is under way,
// before the next batches arrive at this node.
int StepRunner::NextReady() {
  const int num_batches = static_cast<int>(batches_.size());
  for (int i = 1; i <= num_batches; ++i) {
    const int number = (last_ + i) % num_batches;
    const Batch& batch = batches_[static_cast<size_t>(number)];
    if (batch.under_way && batch.rotates && batch.next_slice == 0 && !Reducing(number))
      return number;
  }
  for (int i = 1; i <= num_batches; ++i) {
    const int number = (last_ + i) % num_batches;
    if (Ready(number)) return number;
  }
  return -1;
}

int StepRunner::NodeOf(int number, int slice) const {
  if (!model_.share.whole())
    return model_.StageOf(slice) * model_.share.num_ranks + model_.share.rank;
  return (number + (batches_[static_cast<size_t>(number)].rotates ? slice : 0)) %
         others_->num_nodes();
}

bool StepRunner::Ready(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  if (!batch.under_way) return false;
  if (Reducing(number)) return sums_->Ready(number);
  const int k = batch.next_slice;
  if (k == 0) return true;
  if (!RunsHere(number, k - 1) && !batch.has_context) {
    const int from = NodeOf(number, k - 1);
    if (!others_->arrived(from, number)) {
      others_->LoseIfSilent(from, batch.waits_since);
      return false;
    }
    if (Status taken = TakeContext(number); !taken.ok()) {
      LAMINA_LOG_ERROR("{}", taken.ToString());
      return false;
    }
    batch.has_context = true;
  }
  return batch.attention->Finish();
}

Status StepRunner::TakeContext(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const int k = batch.next_slice;
  const int from = NodeOf(number, k - 1);
  const int64_t start_ns = trace_.Now();
  LAMINA_ASSIGN_OR_RETURN(
      const std::span<const std::byte> payload,
      others_->Take(from, number, StepId{batch.result.step()}, k, batch.rows.tokens.size()));
  Result<control::StepState> state =
      ReadContext({model_.sliced, wire_dtype_}, device_, k, *batch.slices, batch.rows.tokens.size(),
                  batch.first_prefill, payload);
  if (!state.ok()) return others_->Lose(from, state.status().message());
  for (const control::FailedSequence& failed : state->so_far().failed())
    batch.failures.emplace(SequenceId{failed.sequence()},
                           Status(static_cast<StatusCode>(failed.status()), failed.message()));
  state->mutable_so_far()->clear_failed();
  batch.result = std::move(*state->mutable_so_far());
  std::vector<AskedNode> asked;
  for (int i = 0; i < state->asked_size() && i < state->posted_ns_size(); ++i)
    asked.push_back({NodeId{state->asked(i)}, state->posted_ns(i), state->clock() == ClockId()});
  const Op& attention = AttentionBefore(k);
  batch.attention->transfer()->Expect(attention.layer, batch.slices->value(attention.output),
                                      asked);
  trace_.Ran(StepWork::kTake, Traced(number, attention.layer), start_ns);
  return OkStatus();
}

const Op& StepRunner::AttentionBefore(int slice) const {
  return model_.sliced.attentions[static_cast<size_t>(
      model_.sliced.slices[static_cast<size_t>(slice - 1)].attention)];
}

AttentionValues StepRunner::ValuesOf(const Batch& batch, const Slice& slice, const Op& attention) {
  SliceRunner& slices = *batch.slices;
  return {attention.layer, slices.value(slice.q), slices.value(slice.k), slices.value(slice.v),
          slices.value(attention.output)};
}

bool StepRunner::RunSlice(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const Slice& slice = model_.sliced.slices[static_cast<size_t>(batch.next_slice)];
  const bool is_last = slice.attention < 0;
  if (Reducing(number)) {
    if (!TakeSum(number)) return false;  // a rank is lost, and Advance ends all steps
  } else {
    batch.has_context = false;
    batch.num_rows = is_last ? batch.rows.sampled.size() : batch.rows.tokens.size();
    if (is_last) batch.slices->KeepRows(batch.next_slice, batch.rows.sampled);
  }
  if (!is_last) {
    RunToAttention(number);
    return false;
  }
  if (const Op* const sum = RunPart(number)) {
    Reduce(number, *sum);
    return false;
  }
  ++batch.next_slice;
  return true;
}

const Op* StepRunner::RunPart(int number) {
  const int k = batches_[static_cast<size_t>(number)].next_slice;
  const int64_t start_ns = trace_.Now();
  const Op* const sum = batches_[static_cast<size_t>(number)].slices->Run(k);
  trace_.Ran(StepWork::kSlice, Traced(number, k), start_ns);
  return sum;
}

void StepRunner::RunToAttention(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const int k = batch.next_slice;
  const Slice& slice = model_.sliced.slices[static_cast<size_t>(k)];
  const Op& attention = AttentionBefore(k + 1);
  if (attention_->capabilities().queries_first && !batch.sent_queries) {
    const int64_t start_ns = trace_.Now();
    const Op* const sum = batch.slices->RunToQueries(k);
    const int64_t has_q_ns = trace_.Ran(StepWork::kSlice, Traced(number, k), start_ns);
    if (sum != nullptr) return Reduce(number, *sum);
    const NodeId taker = RunsHere(number, k + 1) ? NodeId{} : others_->node(NodeOf(number, k + 1));
    batch.attention->StartQueries(attention.layer, batch.slices->value(slice.q), taker);
    trace_.Ran(StepWork::kPost, Traced(number, attention.layer), has_q_ns);
    batch.sent_queries = true;
  }
  if (const Op* const sum = RunPart(number)) return Reduce(number, *sum);
  const int64_t ran_ns = trace_.Now();
  batch.sent_queries = false;
  ++batch.next_slice;
  if (!RunsHere(number, k + 1)) return PassOn(number, k, ran_ns);
  batch.attention->Start(ValuesOf(batch, slice, attention));
  trace_.Ran(StepWork::kPost, Traced(number, attention.layer), ran_ns);
}

// If the sum ends the step here, this rank hands rank 0 its part together with what it knows of the
// step: failures, times, traffic.
void StepRunner::Reduce(int number, const Op& op) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const StepId step{batch.result.step()};
  const int64_t start_ns = trace_.Now();
  if (!sums_->EndsHere(op)) {
    sums_->Start(number, step, op, batch.num_rows, *batch.slices);
    trace_.Ran(StepWork::kPost, Traced(number, batch.next_slice), start_ns);
    return;
  }
  batch.attention->transfer()->AwaitPushes();
  Account(number);
  TellTimes(number);
  control::StepResult so_far = batch.result;
  for (const auto& [sequence, status] : batch.failures) AddFailure(sequence, status, so_far);
  if (sums_->HandOver(number, step, op, batch.num_rows, *batch.slices, std::move(so_far)))
    Leave(number);
}

// With the step's last sum come the other ranks' results, which are added to this one's.
bool StepRunner::TakeSum(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const int64_t start_ns = trace_.Now();
  std::vector<control::StepResult> told;
  if (!sums_->Finish(number, *batch.slices, told)) return false;
  for (const control::StepResult& other : told) {
    for (const control::FailedSequence& failed : other.failed())
      batch.failures.emplace(SequenceId{failed.sequence()},
                             Status(static_cast<StatusCode>(failed.status()), failed.message()));
    batch.result.mutable_lost_peers()->MergeFrom(other.lost_peers());
    batch.result.mutable_times()->MergeFrom(other.times());
    batch.result.set_attention_wait_us(
        std::max(batch.result.attention_wait_us(), other.attention_wait_us()));
    batch.result.set_bytes_to_memory(batch.result.bytes_to_memory() + other.bytes_to_memory());
    batch.result.set_bytes_from_memory(batch.result.bytes_from_memory() +
                                       other.bytes_from_memory());
    batch.result.set_stale_messages(batch.result.stale_messages() + other.stale_messages());
  }
  trace_.Ran(StepWork::kTake, Traced(number, batch.next_slice), start_ns);
  return true;
}

TracedWork StepRunner::Traced(int number, int layer) const {
  const Batch& batch = batches_[static_cast<size_t>(number)];
  return {StepId{batch.result.step()}, number, layer, batch.rows.tokens.size()};
}

void StepRunner::PassOn(int number, int k, int64_t ran_ns) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const Slice& slice = model_.sliced.slices[static_cast<size_t>(k)];
  const Op& attention = AttentionBefore(k + 1);
  const int to = NodeOf(number, k + 1);
  const std::span<const AskedNode> asked =
      batch.attention->transfer()->StartFor(others_->node(to), ValuesOf(batch, slice, attention));
  control::StepState state;
  state.set_clock(ClockId());
  for (const AskedNode& node : asked) {
    state.add_asked(node.node.value);
    state.add_posted_ns(node.posted_ns);
  }
  const int num_slices = static_cast<int>(model_.sliced.slices.size());
  while (batch.next_slice < num_slices && !RunsHere(number, batch.next_slice)) ++batch.next_slice;
  const bool leaves = batch.next_slice == num_slices;
  Account(number);
  if (leaves) TellTimes(number);
  *state.mutable_so_far() = batch.result;
  for (const auto& [sequence, status] : batch.failures)
    AddFailure(sequence, status, *state.mutable_so_far());
  const size_t num_rows = batch.rows.tokens.size();
  const size_t bytes =
      WriteContext({model_.sliced, wire_dtype_}, device_, k + 1, *batch.slices, num_rows,
                   batch.first_prefill, std::move(state), others_->payload(to, number));
  // If the post fails, the other node is lost, and Advance ends all steps.
  if (Status posted =
          others_->Post(to, number, StepId{batch.result.step()}, k + 1, num_rows, bytes);
      !posted.ok())
    return;
  trace_.Ran(StepWork::kPost, Traced(number, attention.layer), ran_ns);
  batch.waits_since = Clock::now();
  if (leaves) Leave(number);
}

void StepRunner::Leave(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  batch.attention->End();
  batch.under_way = false;
  --num_under_way_;
}

// If other compute nodes add their times to the same result, this node's get its id.
void StepRunner::TellTimes(int number) {
  control::StepResult& result = batches_[static_cast<size_t>(number)].result;
  trace_.EndStep(Traced(number, 0), batches_[static_cast<size_t>(number)].start_ns);
  const int before = result.times_size();
  trace_.TellTimes(result);
  for (int i = before; others_ != nullptr && i < result.times_size(); ++i) {
    if (result.times(i).node_id() == 0)
      result.mutable_times(i)->set_node_id(others_->node(others_->self()).value);
  }
}

void StepRunner::Account(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  control::StepResult& result = batch.result;
  const Failures& failures = batch.attention->failures();
  batch.failures.insert(failures.begin(), failures.end());
  for (const LostNode& lost : attention_->TakeLostNodes()) AddLostPeer(lost, result);
  const AttentionTraffic now = batch.attention->traffic(),
                         before = std::exchange(batch.counted, now);
  result.set_attention_wait_us(result.attention_wait_us() + now.wait_us - before.wait_us);
  result.set_bytes_to_memory(result.bytes_to_memory() + now.sent_bytes - before.sent_bytes);
  result.set_bytes_from_memory(result.bytes_from_memory() + now.received_bytes -
                               before.received_bytes);
  const int64_t stale_contexts = others_ == nullptr ? 0 : others_->TakeStale();
  result.set_stale_messages(result.stale_messages() + now.stale_messages - before.stale_messages +
                            stale_contexts);
}

control::StepResult StepRunner::End(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  if (others_ != nullptr) batch.attention->transfer()->AwaitPushes();
  Account(number);
  for (const int row : batch.rows.sampled) {
    const SequenceId sequence = batch.rows.attention[static_cast<size_t>(row)].sequence;
    if (!sequences_.contains(sequence))
      batch.failures.emplace(sequence,
                             InternalError("it was released while its step was under way"));
  }
  const int64_t sample_ns = trace_.Now();
  SampleRows(batch);
  trace_.Ran(StepWork::kSample, Traced(number, batch.next_slice), sample_ns);
  control::StepResult& result = batch.result;
  for (const auto& [sequence, status] : batch.failures) AddFailure(sequence, status, result);
  result.set_total_us(std::chrono::duration_cast<microseconds>(Clock::now() - batch.start).count());
  TellTimes(number);
  Leave(number);
  return std::move(result);
}

void StepRunner::AbandonAll(const LostNode& lost, std::vector<control::StepResult>& results) {
  for (size_t number = 0; number < batches_.size(); ++number) {
    Batch& batch = batches_[number];
    if (!batch.under_way) continue;
    AddLostPeer(lost, batch.result);
    TellTimes(static_cast<int>(number));
    Leave(static_cast<int>(number));
    results.push_back(std::move(batch.result));
  }
}

void StepRunner::UpdateSequences(const control::ComputeOrder& order) {
  for (const uint64_t released : order.released()) {
    sequences_.erase(SequenceId{released});
    attention_->Release(SequenceId{released});
  }
  for (const control::NewSequence& added : order.new_sequences()) {
    Sequence& sequence = sequences_[SequenceId{added.sequence()}];
    sequence.tokens.assign(added.tokens().begin(), added.tokens().end());
    sequence.num_prompt =
        static_cast<size_t>(std::clamp(added.num_prompt_tokens(), 0, added.tokens_size()));
    sequence.sampling = FromProto(added.sampling());
  }
  for (const control::ComputeWork& work : order.work()) Learn(work);
}

// The token that was sampled last comes back with the order that computes it. So every compute node
// learns of it, also those that did not sample it.
void StepRunner::Learn(const control::ComputeWork& work) {
  const auto found = sequences_.find(SequenceId{work.sequence()});
  if (found == sequences_.end() || work.prefill() || work.tokens_size() != 1) return;
  std::vector<TokenId>& tokens = found->second.tokens;
  if (work.first_position() == static_cast<int64_t>(tokens.size()) &&
      work.first_position() < limits_.max_model_len())
    tokens.push_back(work.tokens(0));
}

// An order comes from another process, so it is checked against what this node knows.
Status StepRunner::Check(const control::ComputeWork& work) const {
  const auto found = sequences_.find(SequenceId{work.sequence()});
  if (found == sequences_.end())
    return InternalError("the order names a sequence that was not announced");
  const std::vector<TokenId>& known = found->second.tokens;
  // Tables of position embeddings have max_positions rows.
  const int64_t longest = std::min(
      {limits_.max_model_len(), model_.config.max_positions, static_cast<int64_t>(known.size())});
  if (work.tokens_size() == 0 || work.first_position() < 0 ||
      work.first_position() > longest - work.tokens_size()) {
    return InternalError("the order's positions, " + std::to_string(work.tokens_size()) + " from " +
                         std::to_string(work.first_position()) + " on, do not fit a sequence of " +
                         std::to_string(known.size()) + " tokens");
  }
  int64_t num_routed = 0;
  for (const control::KvPart& part : work.route()) num_routed += part.num_tokens();
  if (num_routed != work.tokens_size())
    return InternalError("the order's route has no place for some tokens");
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
    if (work.prefill() && order.dummy_prefill()) {
      if (Status status = AppendDummy(work, StepId{order.step()}); !status.ok())
        failures.emplace(sequence, std::move(status));
      continue;
    }
    Status status = Check(work);
    if (status.ok()) status = Share(work, StepId{order.step()});
    const int64_t room =
        limits_.max_num_batched_tokens() - static_cast<int64_t>(rows.tokens.size());
    if (status.ok() && work.tokens_size() > room)
      status = InternalError("the order has more rows than max_num_batched_tokens");
    if (status.ok() && !rows.attention.empty() && rows.attention.back().prefill &&
        !work.prefill()) {
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

Status StepRunner::AppendDummy(const control::ComputeWork& work, StepId step) const {
  LocalKv* const kv = attention_->capabilities().own_kv;
  if (kv == nullptr) return OkStatus();
  int64_t position = work.first_position();
  for (const control::KvPart& part : work.route()) {
    LAMINA_RETURN_IF_ERROR(
        kv->AppendDummy(SequenceId{work.sequence()}, position,
                        {part.slots().data(), static_cast<size_t>(part.slots_size())}, step));
    position += part.slots_size();
  }
  return OkStatus();
}

// Does nothing unless the work says that a beginning of the sequence is there already.
Status StepRunner::Share(const control::ComputeWork& work, StepId step) const {
  for (const control::KvPart& part : work.route()) {
    if (part.shared_size() == 0) continue;
    if (part.shared_size() != work.first_position())
      return InternalError("the order's shared slots are not those of the tokens before");
    LocalKv* const kv = attention_->capabilities().own_kv;
    if (kv == nullptr) continue;
    LAMINA_RETURN_IF_ERROR(
        kv->Share(SequenceId{work.sequence()},
                  {part.shared().data(), static_cast<size_t>(part.shared_size())}, step));
  }
  return OkStatus();
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
      rows.attention.push_back({SequenceId{work.sequence()}, NodeId{part.node_id()}, position++,
                                slot, work.prefill(), work.sample()});
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
  const auto sequence_of = [&](size_t i) {
    return rows.attention[static_cast<size_t>(rows.sampled[i])].sequence;
  };
  std::vector<SampleWork> work;
  for (size_t i = 0; i < rows.sampled.size(); ++i) {
    if (failures.contains(sequence_of(i))) continue;
    const Sequence& sequence = sequences_.at(sequence_of(i));
    const std::span<const TokenId> all(sequence.tokens);
    work.push_back({i,
                    &sequence.sampling,
                    {all.first(sequence.num_prompt), all.subspan(sequence.num_prompt)}});
  }
  std::vector<SampledToken> tokens(work.size());
  batch.slices->Sample(work, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const SequenceId id = sequence_of(work[i].row);
    if (tokens[i].token < 0) {
      AddFailure(id, InternalError("the model gave logits that are not numbers"), result);
      continue;
    }
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
