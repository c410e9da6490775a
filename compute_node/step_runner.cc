#include "compute_node/step_runner.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "compute_node/step_context.h"

namespace lamina {

Result<std::unique_ptr<StepRunner>> StepRunner::Create(const LoadedModel& model,
                                                       const SessionLimits& limits,
                                                       std::unique_ptr<AttentionBackend> attention,
                                                       ComputeDevice& device) {
  std::unique_ptr<StepRunner> runner(new StepRunner(model, limits, std::move(attention), device));
  for (Batch& batch : runner->batches_) {
    LAMINA_ASSIGN_OR_RETURN(batch.slices, device.MakeSlices(model, limits.max_num_batched_tokens));
  }
  return runner;
}

StepRunner::StepRunner(const LoadedModel& model, const SessionLimits& limits,
                       std::unique_ptr<AttentionBackend> attention, ComputeDevice& device)
    : model_(model),
      limits_(limits),
      attention_(std::move(attention)),
      device_(device),
      batches_(static_cast<size_t>(std::max(limits.num_batches, 1))) {
  attention_->TraceTo(&trace_);
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
  sums_ =
      std::make_unique<AllReduce>(*others_, device_, model_, wire_dtype,
                                  static_cast<int>(batches_.size()), waits * limits_.peer_timeout);
}

Status StepRunner::Begin(ComputeOrder order) {
  if (order.batch >= batches_.size() || batches_[order.batch].under_way)
    return InvalidArgument("an order for batch " + std::to_string(order.batch) +
                           ", which is not there or has a step under way");
  if (!model_.share.whole() && others_ == nullptr)
    return InvalidArgument("an order before this node has joined those with the rest of the model");
  const int number = static_cast<int>(order.batch);
  Batch& batch = batches_[order.batch];
  UpdateSequences(order);
  batch.rotates = order.rotates;
  batch.next_slice = 0;
  const int num_slices = static_cast<int>(model_.sliced.slices.size());
  while (batch.next_slice < num_slices && !RunsHere(number, batch.next_slice)) ++batch.next_slice;
  if (batch.next_slice == num_slices) return OkStatus();  // others carry it out
  batch.start = batch.waits_since = Clock::now();
  trace_.BeginStep(!order.no_times);
  batch.start_ns = trace_.Now();
  batch.result = {.epoch = order.epoch, .step = order.step, .batch = order.batch};
  batch.counted = {};
  batch.failures.clear();
  batch.rows = Collect(order, batch.failures);
  const std::vector<AttentionWork>& rows = batch.rows.attention;
  batch.first_prefill =
      static_cast<size_t>(std::ranges::find_if(rows, &AttentionWork::prefill) - rows.begin());
  attention_->BeginStep(number, order.step, rows);
  batch.slices->Begin(batch.rows.tokens, batch.rows.positions);
  batch.has_context = batch.sent_queries = false;
  if (sums_ != nullptr) sums_->Forget(number);
  batch.under_way = true;
  ++num_under_way_;
  return OkStatus();
}

bool StepRunner::Advance(std::vector<StepResult>& results) {
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
  return attention_->Finish(number);
}

Status StepRunner::TakeContext(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const int k = batch.next_slice;
  const int from = NodeOf(number, k - 1);
  const int64_t start_ns = trace_.Now();
  LAMINA_ASSIGN_OR_RETURN(
      const std::span<const std::byte> payload,
      others_->Take(from, number, batch.result.step, k, batch.rows.tokens.size()));
  Result<StepState> state = ReadContext({model_.sliced, wire_dtype_}, device_, k, *batch.slices,
                                        batch.rows.tokens.size(), batch.first_prefill, payload);
  if (!state.ok()) return others_->Lose(from, state.status().message());
  batch.result = std::move(state->so_far).value_or(StepResult{});
  for (const FailedSequence& failed : std::exchange(batch.result.failed, {}))
    batch.failures.emplace(failed.sequence, failed.why);
  std::vector<AskedNode> asked;
  for (const StepState::Asked& node : state->asked)
    asked.push_back({node.node, node.posted_ns, state->clock == ClockId()});
  const Op& attention = AttentionBefore(k);
  attention_->Expect(number, attention.layer, batch.slices->value(attention.output), asked);
  trace_.Ran(StepWork::kTake, Traced(number, attention.layer), start_ns);
  return OkStatus();
}

const Op& StepRunner::AttentionBefore(int slice) const {
  return model_.sliced.attentions[static_cast<size_t>(
      model_.sliced.slices[static_cast<size_t>(slice - 1)].attention)];
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
  if (attention_->takes_queries_first() && !batch.sent_queries) {
    const int64_t start_ns = trace_.Now();
    const Op* const sum = batch.slices->RunToQueries(k);
    const int64_t has_q_ns = trace_.Ran(StepWork::kSlice, Traced(number, k), start_ns);
    if (sum != nullptr) return Reduce(number, *sum);
    const NodeId taker = RunsHere(number, k + 1) ? NodeId{} : others_->node(NodeOf(number, k + 1));
    attention_->StartQueries(taker, number, attention.layer, batch.slices->value(slice.q));
    trace_.Ran(StepWork::kPost, Traced(number, attention.layer), has_q_ns);
    batch.sent_queries = true;
  }
  if (const Op* const sum = RunPart(number)) return Reduce(number, *sum);
  const int64_t ran_ns = trace_.Now();
  batch.sent_queries = false;
  ++batch.next_slice;
  if (!RunsHere(number, k + 1)) return PassOn(number, k, ran_ns);
  attention_->Start(number, attention.layer, batch.slices->value(slice.q),
                    batch.slices->value(slice.k), batch.slices->value(slice.v),
                    batch.slices->value(attention.output));
  trace_.Ran(StepWork::kPost, Traced(number, attention.layer), ran_ns);
}

// If the sum ends the step here, this rank hands rank 0 its part together with what it knows of the
// step: failures, times, traffic.
void StepRunner::Reduce(int number, const Op& op) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const StepId step = batch.result.step;
  const int64_t start_ns = trace_.Now();
  if (!sums_->EndsHere(op)) {
    sums_->Start(number, step, op, batch.num_rows, *batch.slices);
    trace_.Ran(StepWork::kPost, Traced(number, batch.next_slice), start_ns);
    return;
  }
  attention_->AwaitPushes(number);
  Account(number);
  TellTimes(number);
  StepResult so_far = batch.result;
  for (const auto& [sequence, status] : batch.failures) so_far.failed.push_back({sequence, status});
  if (sums_->HandOver(number, step, op, batch.num_rows, *batch.slices, std::move(so_far)))
    Leave(number);
}

// With the step's last sum come the other ranks' results, which are added to this one's.
bool StepRunner::TakeSum(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const int64_t start_ns = trace_.Now();
  std::vector<StepResult> told;
  if (!sums_->Finish(number, *batch.slices, told)) return false;
  for (const StepResult& other : told) {
    for (const FailedSequence& failed : other.failed)
      batch.failures.emplace(failed.sequence, failed.why);
    StepResult& result = batch.result;
    result.lost_nodes.insert(result.lost_nodes.end(), other.lost_nodes.begin(),
                             other.lost_nodes.end());
    result.times.insert(result.times.end(), other.times.begin(), other.times.end());
    result.attention_wait_us = std::max(result.attention_wait_us, other.attention_wait_us);
    result.bytes_to_memory += other.bytes_to_memory;
    result.bytes_from_memory += other.bytes_from_memory;
    result.stale_messages += other.stale_messages;
  }
  trace_.Ran(StepWork::kTake, Traced(number, batch.next_slice), start_ns);
  return true;
}

TracedWork StepRunner::Traced(int number, int layer) const {
  const Batch& batch = batches_[static_cast<size_t>(number)];
  return {batch.result.step, number, layer, batch.rows.tokens.size()};
}

void StepRunner::PassOn(int number, int k, int64_t ran_ns) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const Slice& slice = model_.sliced.slices[static_cast<size_t>(k)];
  const Op& attention = AttentionBefore(k + 1);
  const int to = NodeOf(number, k + 1);
  const std::span<const AskedNode> asked =
      attention_->StartFor(others_->node(to), number, attention.layer, batch.slices->value(slice.q),
                           batch.slices->value(slice.k), batch.slices->value(slice.v),
                           batch.slices->value(attention.output));
  StepState state;
  state.clock = ClockId();
  for (const AskedNode& node : asked) state.asked.push_back({node.node, node.posted_ns});
  const int num_slices = static_cast<int>(model_.sliced.slices.size());
  while (batch.next_slice < num_slices && !RunsHere(number, batch.next_slice)) ++batch.next_slice;
  const bool leaves = batch.next_slice == num_slices;
  Account(number);
  if (leaves) TellTimes(number);
  state.so_far = batch.result;
  for (const auto& [sequence, status] : batch.failures)
    state.so_far->failed.push_back({sequence, status});
  const size_t num_rows = batch.rows.tokens.size();
  const size_t bytes =
      WriteContext({model_.sliced, wire_dtype_}, device_, k + 1, *batch.slices, num_rows,
                   batch.first_prefill, std::move(state), others_->payload(to, number));
  // If the post fails, the other node is lost, and Advance ends all steps.
  if (Status posted = others_->Post(to, number, batch.result.step, k + 1, num_rows, bytes);
      !posted.ok())
    return;
  trace_.Ran(StepWork::kPost, Traced(number, attention.layer), ran_ns);
  batch.waits_since = Clock::now();
  if (leaves) Leave(number);
}

void StepRunner::Leave(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  attention_->EndStep(number);
  batch.under_way = false;
  --num_under_way_;
}

// If other compute nodes add their times to the same result, this node's get its id.
void StepRunner::TellTimes(int number) {
  StepResult& result = batches_[static_cast<size_t>(number)].result;
  trace_.EndStep(Traced(number, 0), batches_[static_cast<size_t>(number)].start_ns);
  const size_t before = result.times.size();
  trace_.TellTimes(result);
  for (size_t i = before; others_ != nullptr && i < result.times.size(); ++i) {
    if (result.times[i].node == NodeId{}) result.times[i].node = others_->node(others_->self());
  }
}

void StepRunner::Account(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  StepResult& result = batch.result;
  batch.failures.insert(attention_->failures(number).begin(), attention_->failures(number).end());
  for (LostNode& lost : attention_->TakeLostNodes()) result.lost_nodes.push_back(std::move(lost));
  const AttentionBackend::Traffic now = attention_->traffic(number),
                                  before = std::exchange(batch.counted, now);
  result.attention_wait_us += now.wait_us - before.wait_us;
  result.bytes_to_memory += now.sent_bytes - before.sent_bytes;
  result.bytes_from_memory += now.received_bytes - before.received_bytes;
  const int64_t stale_contexts = others_ == nullptr ? 0 : others_->TakeStale();
  result.stale_messages += now.stale_messages - before.stale_messages + stale_contexts;
}

StepResult StepRunner::End(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  if (others_ != nullptr) attention_->AwaitPushes(number);
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
  StepResult& result = batch.result;
  for (const auto& [sequence, status] : batch.failures) result.failed.push_back({sequence, status});
  result.total_us = std::chrono::duration_cast<microseconds>(Clock::now() - batch.start).count();
  TellTimes(number);
  Leave(number);
  return std::move(result);
}

void StepRunner::AbandonAll(const LostNode& lost, std::vector<StepResult>& results) {
  for (size_t number = 0; number < batches_.size(); ++number) {
    Batch& batch = batches_[number];
    if (!batch.under_way) continue;
    batch.result.lost_nodes.push_back(lost);
    TellTimes(static_cast<int>(number));
    Leave(static_cast<int>(number));
    results.push_back(std::move(batch.result));
  }
}

void StepRunner::UpdateSequences(ComputeOrder& order) {
  for (const SequenceId released : order.released) {
    sequences_.erase(released);
    attention_->Release(released);
  }
  for (NewSequence& added : order.new_sequences) {
    Sequence& sequence = sequences_[added.sequence];
    sequence.tokens = std::move(added.tokens);
    sequence.num_prompt = static_cast<size_t>(
        std::clamp<int64_t>(added.num_prompt_tokens, 0, std::ssize(sequence.tokens)));
    sequence.sampling = std::move(added.sampling);
  }
  for (const ComputeWork& work : order.work) Learn(work);
}

// The token that was sampled last comes back with the order that computes it. So every compute node
// learns of it, also those that did not sample it.
void StepRunner::Learn(const ComputeWork& work) {
  const auto found = sequences_.find(work.sequence);
  if (found == sequences_.end() || work.prefill || work.tokens.size() != 1) return;
  std::vector<TokenId>& tokens = found->second.tokens;
  if (work.first_position == static_cast<int64_t>(tokens.size()) &&
      work.first_position < limits_.max_model_len)
    tokens.push_back(work.tokens[0]);
}

// An order comes from another process, so it is checked against what this node knows.
Status StepRunner::Check(const ComputeWork& work) const {
  const auto found = sequences_.find(work.sequence);
  if (found == sequences_.end())
    return InternalError("the order names a sequence that was not announced");
  const std::vector<TokenId>& known = found->second.tokens;
  // Tables of position embeddings have max_positions rows.
  const int64_t longest = std::min(
      {limits_.max_model_len, model_.config.max_positions, static_cast<int64_t>(known.size())});
  const int64_t num_tokens = std::ssize(work.tokens);
  if (num_tokens == 0 || work.first_position < 0 || work.first_position > longest - num_tokens) {
    return InternalError("the order's positions, " + std::to_string(num_tokens) + " from " +
                         std::to_string(work.first_position) + " on, do not fit a sequence of " +
                         std::to_string(known.size()) + " tokens");
  }
  int64_t num_routed = 0;
  for (const WorkPart& part : work.route) num_routed += part.num_tokens;
  if (num_routed != num_tokens)
    return InternalError("the order's route has no place for some tokens");
  for (size_t i = 0; i < work.tokens.size(); ++i) {
    if (work.tokens[i] != known[static_cast<size_t>(work.first_position) + i])
      return InternalError("the order's tokens are not the sequence's");
    if (work.tokens[i] < 0 || work.tokens[i] >= model_.config.vocab_size)
      return InternalError("the order has a token outside the vocabulary");
  }
  return OkStatus();
}

StepRunner::Rows StepRunner::Collect(const ComputeOrder& order, Failures& failures) const {
  Rows rows;
  for (const ComputeWork& work : order.work) {
    const SequenceId sequence = work.sequence;
    if (work.prefill && order.dummy_prefill) {
      if (Status status = AppendDummy(work, order.step); !status.ok())
        failures.emplace(sequence, std::move(status));
      continue;
    }
    Status status = Check(work);
    if (status.ok()) status = Share(work, order.step);
    const int64_t room = limits_.max_num_batched_tokens - static_cast<int64_t>(rows.tokens.size());
    if (status.ok() && std::ssize(work.tokens) > room)
      status = InternalError("the order has more rows than max_num_batched_tokens");
    if (status.ok() && !rows.attention.empty() && rows.attention.back().prefill && !work.prefill) {
      status = InternalError("the order has a decode row behind a prefill row");
    }
    if (!status.ok()) {
      failures.emplace(sequence, std::move(status));
      continue;
    }
    AddRows(work, rows);
    if (work.sample) rows.sampled.push_back(static_cast<int>(rows.tokens.size()) - 1);
  }
  return rows;
}

Status StepRunner::AppendDummy(const ComputeWork& work, StepId step) const {
  int64_t position = work.first_position;
  for (const WorkPart& part : work.route) {
    LAMINA_RETURN_IF_ERROR(attention_->AppendDummy(work.sequence, position, part.slots, step));
    position += std::ssize(part.slots);
  }
  return OkStatus();
}

// Does nothing unless the work says that a beginning of the sequence is there already.
Status StepRunner::Share(const ComputeWork& work, StepId step) const {
  for (const WorkPart& part : work.route) {
    if (part.shared.empty()) continue;
    if (std::ssize(part.shared) != work.first_position)
      return InternalError("the order's shared slots are not those of the tokens before");
    LAMINA_RETURN_IF_ERROR(attention_->Share(work.sequence, part.shared, step));
  }
  return OkStatus();
}

void StepRunner::AddRows(const ComputeWork& work, Rows& rows) {
  int64_t position = work.first_position;
  for (const TokenId token : work.tokens) {
    rows.tokens.push_back(token);
    rows.positions.push_back(static_cast<int32_t>(position++));
  }
  position = work.first_position;
  for (const WorkPart& part : work.route) {
    for (int i = 0; i < part.num_tokens; ++i) {
      const TokenSlot slot = i < std::ssize(part.slots) ? part.slots[static_cast<size_t>(i)] : 0;
      rows.attention.push_back(
          {work.sequence, part.node, position++, slot, work.prefill, work.sample});
    }
  }
  if (work.prefill) return;
  for (const WorkPart& part : work.route) {
    if (part.num_tokens == 0) rows.attention.back().also_on.push_back(part.node);
  }
}

void StepRunner::SampleRows(Batch& batch) {
  const Rows& rows = batch.rows;
  const Failures& failures = batch.failures;
  StepResult& result = batch.result;
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
      result.failed.push_back({id, InternalError("the model gave logits that are not numbers")});
      continue;
    }
    result.sampled.push_back({id, std::move(tokens[i])});
  }
}

}  // namespace lamina
