#include "compute_node/step_rows.h"

#include <algorithm>
#include <string>
#include <utility>

namespace lamina {
namespace {

// Enters work with made-up K and V, which is not computed. Like Share, it does nothing if memory
// nodes hold the KV: they have orders of their own.
Status AppendDummy(const ComputeWork& work, StepId step, KvCache* own_kv) {
  if (own_kv == nullptr) return OkStatus();
  int64_t position = work.first_position;
  for (const WorkPart& part : work.route) {
    LAMINA_RETURN_IF_ERROR(own_kv->AppendDummy(work.sequence, position, part.slots, step));
    position += std::ssize(part.slots);
  }
  return OkStatus();
}

// Enters the beginning of the sequence that is there already, if there is one.
Status Share(const ComputeWork& work, StepId step, KvCache* own_kv) {
  if (own_kv == nullptr) return OkStatus();
  for (const WorkPart& part : work.route) {
    if (part.shared.empty()) continue;
    LAMINA_RETURN_IF_ERROR(own_kv->Share(work.sequence, part.shared, step));
  }
  return OkStatus();
}

// Ok if the work's tokens are among the first `num_tokens` of a sequence.
Status CheckPositions(const ComputeWork& work, int64_t num_tokens) {
  const int64_t count = std::ssize(work.tokens);
  if (count > 0 && work.first_position >= 0 && work.first_position <= num_tokens - count)
    return OkStatus();
  return InternalError("the order's positions, " + std::to_string(count) + " from " +
                       std::to_string(work.first_position) + " on, do not fit a sequence of " +
                       std::to_string(num_tokens) + " tokens");
}

void AddRows(const ComputeWork& work, const KnownSequence& sequence, StepRows& rows) {
  int64_t position = work.first_position;
  for (size_t i = 0; i < work.tokens.size(); ++i) {
    const auto row = static_cast<int>(rows.size());
    const bool ends = work.sample && i + 1 == work.tokens.size();
    const bool scores = !ends && static_cast<size_t>(position) < sequence.num_scoring();
    if (ends) (sequence.sampling.embeds ? rows.embedded : rows.sampled).push_back(row);
    if (scores) rows.scored.push_back(row);
    if (ends || scores) rows.kept.push_back(row);
    rows.tokens.push_back(work.tokens[i]);
    rows.positions.push_back(static_cast<int32_t>(position++));
  }
  position = work.first_position;
  for (const WorkPart& part : work.route) {
    for (int i = 0; i < part.num_tokens; ++i) {
      const TokenSlot slot = i < std::ssize(part.slots) ? part.slots[static_cast<size_t>(i)] : 0;
      rows.attention.push_back(
          {work.sequence, part.node, position++, slot, work.prefill, work.ends_prefill});
    }
  }
  if (work.prefill) return;
  rows.first_prefill = rows.size();
  for (const WorkPart& part : work.route) {
    if (part.num_tokens == 0) rows.attention.back().also_on.push_back(part.node);
  }
}

}  // namespace

void KnownSequences::Update(ComputeOrder& order) {
  for (const SequenceId released : order.released) sequences_.erase(released);
  for (NewSequence& added : order.new_sequences) {
    KnownSequence& sequence = sequences_[added.sequence];
    sequence.tokens = std::move(added.tokens);
    sequence.num_prompt = static_cast<size_t>(
        std::clamp<int64_t>(added.num_prompt_tokens, 0, std::ssize(sequence.tokens)));
    sequence.sampling = std::move(added.sampling);
    sequence.constraint = {};
  }
  for (const ComputeWork& work : order.work) Learn(work);
}

// The token that was sampled last comes back with the order that computes it. So every compute node
// learns of it, also those that did not sample it.
void KnownSequences::Learn(const ComputeWork& work) {
  const auto found = sequences_.find(work.sequence);
  if (found == sequences_.end() || work.prefill || work.tokens.size() != 1) return;
  std::vector<TokenId>& tokens = found->second.tokens;
  if (work.first_position == std::ssize(tokens) && work.first_position < limits_.max_model_len)
    tokens.push_back(work.tokens[0]);
}

const KnownSequence* KnownSequences::Find(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? nullptr : &found->second;
}

Result<SampleWork> KnownSequences::NextTokenOf(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return NotFound("it was released while its step was under way");
  KnownSequence& known = found->second;
  LAMINA_ASSIGN_OR_RETURN(const NextTokens next,
                          constraints_.Next(known.sampling, known.output(), known.constraint));
  return SampleWork{0, &known.sampling, {known.prompt(), known.output(), next}};
}

StepRows KnownSequences::RowsOf(const ComputeOrder& order, KvCache* own_kv,
                                std::vector<FailedSequence>& failed) const {
  StepRows rows;
  for (const ComputeWork& work : order.work) {
    const bool made_up = work.prefill && order.dummy_prefill;
    Status wrong = made_up ? OkStatus() : CheckWork(work, rows);
    if (!wrong.ok()) {
      failed.push_back({work.sequence, std::move(wrong), FailureCause::kRequest});
      continue;
    }
    // From here on the order is right, and this node is not: it is told everything of a sequence
    // that starts again.
    Status lacking = made_up ? AppendDummy(work, order.step, own_kv) : CheckKnown(work);
    if (lacking.ok() && !made_up) lacking = Share(work, order.step, own_kv);
    if (!lacking.ok())
      failed.push_back({work.sequence, std::move(lacking), FailureCause::kKvLost});
    else if (!made_up)
      AddRows(work, *Find(work.sequence), rows);
  }
  return rows;
}

Status KnownSequences::CheckWork(const ComputeWork& work, const StepRows& rows) const {
  // Tables of position embeddings have max_positions rows.
  LAMINA_RETURN_IF_ERROR(
      CheckPositions(work, std::min(limits_.max_model_len, model_.config.max_positions)));
  int64_t num_routed = 0;
  for (const WorkPart& part : work.route) {
    num_routed += part.num_tokens;
    if (!part.shared.empty() && std::ssize(part.shared) != work.first_position)
      return InternalError("the order's shared slots are not those of the tokens before");
  }
  if (num_routed != std::ssize(work.tokens))
    return InternalError("the order's route has no place for some tokens");
  for (const TokenId token : work.tokens) {
    if (token < 0 || token >= model_.config.vocab_size)
      return InternalError("the order has a token outside the vocabulary");
  }
  if (std::ssize(work.tokens) > limits_.max_num_batched_tokens - std::ssize(rows.tokens))
    return InternalError("the order has more rows than max_num_batched_tokens");
  if (rows.first_prefill < rows.size() && !work.prefill)
    return InternalError("the order has a decode row behind a prefill row");
  return OkStatus();
}

Status KnownSequences::CheckKnown(const ComputeWork& work) const {
  const KnownSequence* const sequence = Find(work.sequence);
  if (sequence == nullptr)
    return InternalError("the order names a sequence that was not announced");
  LAMINA_RETURN_IF_ERROR(CheckPositions(work, std::ssize(sequence->tokens)));
  if (!std::equal(work.tokens.begin(), work.tokens.end(),
                  sequence->tokens.begin() + work.first_position))
    return InternalError("the order's tokens are not the sequence's");
  return OkStatus();
}

}  // namespace lamina
