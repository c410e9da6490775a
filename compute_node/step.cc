#include "compute_node/step.h"

#include <algorithm>
#include <utility>

namespace lamina {

void Step::Begin(const ComputeOrder& order, const StepPlace& place) {
  under_way_ = true;
  place_ = place;
  start_ = waits_since_ = Clock::now();
  session_.trace.BeginStep(!order.no_times);
  start_ns_ = session_.trace.Now();
  result_ = {.epoch = order.epoch, .step = order.step, .batch = order.batch};
  counted_ = {};
  failures_.clear();
  KvCache* const own_kv = session_.attention->capabilities().own_kv;
  rows_ = session_.sequences.RowsOf(order, own_kv, failures_);
  next_slice_ = place.NextHere(0, num_slices());
  lacks_context_ = next_slice_ > 0;
  sent_queries_ = false;
  when_stored_ = WhenStored::kNothing;
  attention_ = &session_.attention->Begin({batch_, order.step, rows_.attention});
  slices_->Begin(rows_.tokens, rows_.positions);
}

void Step::Leave() {
  attention_->End();
  under_way_ = false;
}

void Step::Enter() {
  if (at_last_slice()) slices_->KeepRows(next_slice_, rows_.sampled);
}

const Op* Step::RunToQueries() {
  const int64_t start_ns = session_.trace.Now();
  const Op* const sum = slices_->RunToQueries(next_slice_);
  session_.trace.Ran(StepWork::kSlice, Traced(next_slice_), start_ns);
  return sum;
}

void Step::SendQueries(NodeId taker) {
  const int64_t start_ns = session_.trace.Now();
  const Op& attention = attention_behind();
  attention_->StartQueries(attention.layer, slices_->value(slice().q), taker);
  session_.trace.Ran(StepWork::kPost, Traced(attention.layer), start_ns);
  sent_queries_ = true;
}

const Op* Step::Run() {
  const int64_t start_ns = session_.trace.Now();
  const Op* const sum = slices_->Run(next_slice_);
  session_.trace.Ran(StepWork::kSlice, Traced(next_slice_), start_ns);
  return sum;
}

AttentionValues Step::values() {
  const Op& attention = attention_behind();
  return {attention.layer, slices_->value(slice().q), slices_->value(slice().k),
          slices_->value(slice().v), slices_->value(attention.output)};
}

void Step::Advance() {
  sent_queries_ = false;
  const int next = place_.NextHere(next_slice_ + 1, num_slices());
  lacks_context_ = next > next_slice_ + 1;
  next_slice_ = next;
}

void Step::StartAttention() {
  const int64_t start_ns = session_.trace.Now();
  const AttentionValues of_layer = values();
  attention_->Start(of_layer);
  Advance();
  session_.trace.Ran(StepWork::kPost, Traced(of_layer.layer), start_ns);
}

void Step::Account(int64_t stale_messages) {
  const Failures& failures = attention_->failures();
  failures_.insert(failures.begin(), failures.end());
  for (LostNode& lost : session_.attention->TakeLostNodes())
    result_.lost_nodes.push_back(std::move(lost));
  const AttentionTraffic now = attention_->traffic(), before = std::exchange(counted_, now);
  result_.attention_wait_us += now.wait_us - before.wait_us;
  result_.bytes_to_memory += now.sent_bytes - before.sent_bytes;
  result_.bytes_from_memory += now.received_bytes - before.received_bytes;
  result_.stale_messages += now.stale_messages - before.stale_messages + stale_messages;
}

void Step::TellTimes() {
  session_.trace.EndStep(Traced(0), start_ns_);
  const size_t before = result_.times.size();
  session_.trace.TellTimes(result_);
  for (size_t i = before; i < result_.times.size(); ++i) {
    if (result_.times[i].node == NodeId{}) result_.times[i].node = session_.self;
  }
}

StepResult Step::SoFar() const {
  StepResult so_far = result_;
  for (const auto& [sequence, status] : failures_) so_far.failed.push_back({sequence, status});
  return so_far;
}

void Step::GoOnFrom(StepResult so_far) {
  result_ = std::move(so_far);
  for (FailedSequence& failed : std::exchange(result_.failed, {}))
    Fail(failed.sequence, std::move(failed.why));
}

void Step::AddRank(const StepResult& rank) {
  for (const FailedSequence& failed : rank.failed) Fail(failed.sequence, failed.why);
  result_.lost_nodes.insert(result_.lost_nodes.end(), rank.lost_nodes.begin(),
                            rank.lost_nodes.end());
  result_.times.insert(result_.times.end(), rank.times.begin(), rank.times.end());
  result_.attention_wait_us = std::max(result_.attention_wait_us, rank.attention_wait_us);
  result_.bytes_to_memory += rank.bytes_to_memory;
  result_.bytes_from_memory += rank.bytes_from_memory;
  result_.stale_messages += rank.stale_messages;
}

void Step::Sample() {
  const int64_t start_ns = session_.trace.Now();
  std::vector<SampleWork> work;
  std::vector<SequenceId> ids;  // of the work
  for (size_t i = 0; i < rows_.sampled.size(); ++i) {
    const SequenceId id = rows_.sequence_of(rows_.sampled[i]);
    const KnownSequence* const sequence = session_.sequences.Find(id);
    if (sequence == nullptr)
      Fail(id, InternalError("it was released while its step was under way"));
    if (failures_.contains(id)) continue;
    const std::span<const TokenId> all(sequence->tokens);
    work.push_back({i,
                    &sequence->sampling,
                    {all.first(sequence->num_prompt), all.subspan(sequence->num_prompt)}});
    ids.push_back(id);
  }
  std::vector<SampledToken> tokens(work.size());
  slices_->Sample(work, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].token < 0)
      result_.failed.push_back(
          {ids[i], InternalError("the model gave logits that are not numbers")});
    else
      result_.sampled.push_back({ids[i], std::move(tokens[i])});
  }
  session_.trace.Ran(StepWork::kSample, Traced(num_slices()), start_ns);
}

StepResult Step::End() {
  Sample();
  for (const auto& [sequence, status] : failures_) result_.failed.push_back({sequence, status});
  result_.total_us = std::chrono::duration_cast<microseconds>(Clock::now() - start_).count();
  TellTimes();
  Leave();
  return std::move(result_);
}

StepResult Step::Abandon(const LostNode& lost) {
  result_.lost_nodes.push_back(lost);
  TellTimes();
  Leave();
  return std::move(result_);
}

}  // namespace lamina
