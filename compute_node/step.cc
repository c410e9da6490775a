#include "compute_node/step.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compute_node/buffer_plan.h"

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
  if (course_.at_last_slice()) slices_->KeepRows(course_.next_slice(), rows_.kept);
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

// Before tokens are chosen, which overwrites logits and does not happen where this fails.
void Step::Score() {
  std::vector<ScoreWork> work;
  std::vector<ScoredTokens> scored;  // of the work, without its tokens
  std::vector<size_t> ends;          // of `scored`, in the work
  for (const int row : rows_.scored) {
    const SequenceId id = rows_.sequence_of(row);
    const auto behind = static_cast<size_t>(rows_.positions[static_cast<size_t>(row)]) + 1;
    const KnownSequence* const known = session_.sequences.Find(id);
    if (!outcome_.goes_on(id)) continue;
    if (known == nullptr || behind >= known->tokens.size()) {
      outcome_.Fail(id, FailureCause::kKvLost,
                    NotFound("it was released while its step was under way"));
      continue;
    }
    if (scored.empty() || scored.back().sequence != id) {
      scored.push_back({id, static_cast<int64_t>(behind)});
      ends.push_back(0);
    }
    work.push_back(
        {rows_.PlaceOf(row), known->tokens[behind], known->sampling.num_prompt_logprobs});
    ends.back() = work.size();
  }
  std::vector<TokenScore> scores(work.size());
  slices_->Score(work, scores);
  size_t next = 0;
  for (size_t i = 0; i < scored.size(); ++i) {
    for (; next < ends[i]; ++next) scored[i].tokens.push_back(std::move(scores[next]));
    const bool usable = std::ranges::all_of(
        scored[i].tokens, [](const TokenScore& score) { return score.token >= 0; });
    if (usable)
      outcome_.AddScores(std::move(scored[i]));
    else
      outcome_.Fail(scored[i].sequence, FailureCause::kRequest,
                    InternalError("the model gave logits that are not numbers"));
  }
}

// What the head reads has a buffer of its own to the end of the step (PlanBuffers).
void Step::Embed() {
  const std::optional<HeadOps> head = HeadOpsOf(session_.model.sliced);
  const int64_t width =
      head ? session_.model.sliced.graph.values[static_cast<size_t>(head->input)].width : 0;
  for (const int row : rows_.embedded) {
    const SequenceId id = rows_.sequence_of(row);
    if (!outcome_.goes_on(id)) continue;
    if (!head) {
      outcome_.Fail(
          id, FailureCause::kRequest,
          Unimplemented("this model cannot embed: its logits are not made of one vector"));
      continue;
    }
    EmbeddedPrompt embedded{id, std::vector<float>(static_cast<size_t>(width))};
    const auto place = static_cast<int>(rows_.PlaceOf(row));
    const PackedParts part{slices_->value(head->input), {{&place, 1}, width, 0, width}};
    session_.device.Pack({&part, 1}, reinterpret_cast<std::byte*>(embedded.values.data()));
    if (std::ranges::all_of(embedded.values, [](float value) { return std::isfinite(value); }))
      outcome_.AddEmbedding(std::move(embedded));
    else
      outcome_.Fail(id, FailureCause::kRequest,
                    InternalError("the model gave a hidden state that is not numbers"));
  }
}

void Step::Sample() {
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
    one->row = rows_.PlaceOf(rows_.sampled[i]);
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
}

StepResult Step::End() {
  const int64_t start_ns = session_.trace.Now();
  if (!rows_.scored.empty()) Score();
  if (!rows_.embedded.empty()) Embed();
  Sample();
  session_.trace.Ran(StepWork::kSample, Traced(course_.num_slices()), start_ns);
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
