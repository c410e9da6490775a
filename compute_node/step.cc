#include "compute_node/step.h"

#include <span>
#include <utility>
#include <vector>

namespace lamina {
namespace {

// Why nothing could be chosen.
Status WhyNoToken(const SampleWork& work) {
  if (work.context.next.tokens == nullptr && work.params->bad_words.empty())
    return InternalError("the model gave logits that are not numbers");
  return InvalidArgument(
      "no token is left to choose from: the model gave logits that are not numbers, or what the "
      "request rules out, such as 'bad_words', is all that its constraint allows");
}

}  // namespace

Step::Step(StepSession& session, uint32_t batch, std::unique_ptr<SliceRunner> slices)
    : session_(session),
      batch_(batch),
      slices_(std::move(slices)),
      course_(static_cast<int>(session.model.sliced.slices.size())) {}

void Step::Begin(const ComputeOrder& order, const StepPlace& place) {
  under_way_ = true;
  outcome_.Begin(order, session_.trace);
  KvCache* const own_kv = session_.attention->capabilities().own_kv;
  std::vector<FailedSequence> failed;
  rows_ = session_.sequences.RowsOf(order, own_kv, failed);
  for (FailedSequence& one : failed) outcome_.Fail(one.sequence, one.cause, std::move(one.why));
  course_.Begin(place);
  attention_ = &session_.attention->Begin({batch_, order.step, rows_.attention});
  slices_->Begin(rows_.tokens, rows_.positions);
}

void Step::Leave() {
  attention_->End();
  under_way_ = false;
}

void Step::Enter() {
  if (course_.at_last_slice()) slices_->KeepRows(course_.next_slice(), rows_.sampled);
}

const Op* Step::RunToQueries() {
  const int64_t start_ns = session_.trace.Now();
  const Op* const sum = slices_->RunToQueries(course_.next_slice());
  session_.trace.Ran(StepWork::kSlice, Traced(course_.next_slice()), start_ns);
  return sum;
}

void Step::SendQueries(NodeId taker) {
  const int64_t start_ns = session_.trace.Now();
  const Op& attention = attention_behind();
  attention_->StartQueries(attention.layer, slices_->value(SliceOf(course_.next_slice()).q), taker);
  session_.trace.Ran(StepWork::kPost, Traced(attention.layer), start_ns);
  course_.SentQueries();
}

const Op* Step::Run() {
  const int64_t start_ns = session_.trace.Now();
  const Op* const sum = slices_->Run(course_.next_slice());
  session_.trace.Ran(StepWork::kSlice, Traced(course_.next_slice()), start_ns);
  return sum;
}

AttentionValues Step::values() {
  const Op& attention = attention_behind();
  const Slice& slice = SliceOf(course_.next_slice());
  return {attention.layer, slices_->value(slice.q), slices_->value(slice.k),
          slices_->value(slice.v), slices_->value(attention.output)};
}

void Step::StartAttention() {
  const int64_t start_ns = session_.trace.Now();
  const AttentionValues of_layer = values();
  attention_->Start(of_layer);
  course_.Advance();
  session_.trace.Ran(StepWork::kPost, Traced(of_layer.layer), start_ns);
}

void Step::Account(int64_t stale_messages) {
  outcome_.Account(*attention_, *session_.attention, stale_messages);
}

void Step::TellTimes() { outcome_.TellTimes(session_.trace, Traced(0), session_.self); }

void Step::Sample() {
  const int64_t start_ns = session_.trace.Now();
  std::vector<SampleWork> work;
  std::vector<SequenceId> ids;  // of the work
  for (size_t i = 0; i < rows_.sampled.size(); ++i) {
    const SequenceId id = rows_.sequence_of(rows_.sampled[i]);
    if (!outcome_.goes_on(id)) continue;
    Result<SampleWork> one = session_.sequences.NextTokenOf(id);
    if (!one.ok()) {
      const bool is_gone = one.status().code() == StatusCode::kNotFound;
      outcome_.Fail(id, is_gone ? FailureCause::kKvLost : FailureCause::kRequest, one.status());
      continue;
    }
    one->row = i;
    work.push_back(*one);
    ids.push_back(id);
  }
  std::vector<SampledToken> tokens(work.size());
  slices_->Sample(work, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].token < 0)
      outcome_.Fail(ids[i], FailureCause::kRequest, WhyNoToken(work[i]));
    else
      outcome_.AddToken({ids[i], std::move(tokens[i])});
  }
  session_.sequences.EndStep();
  session_.trace.Ran(StepWork::kSample, Traced(course_.num_slices()), start_ns);
}

StepResult Step::End() {
  Sample();
  outcome_.Complete();
  TellTimes();
  Leave();
  return outcome_.Take();
}

StepResult Step::Abandon(const LostNode& lost) {
  outcome_.Abandon(lost);
  TellTimes();
  Leave();
  return outcome_.Take();
}

}  // namespace lamina
