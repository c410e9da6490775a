// The rows of a step, as an order says them, and the sequences that orders are checked against.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"
#include "base/status.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/compute_device.h"
#include "compute_node/token_constraints.h"
#include "kernels/kv_cache.h"
#include "wire/session_messages.h"
#include "wire/step_messages.h"

namespace lamina {

// Row i is tokens[i] at positions[i]; decode rows come before prefill rows.
struct StepRows {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<AttentionWork> attention;
  // Indices of rows, all ascending: those whose logits choose a token; those whose logits say how
  // likely the token of the prompt behind them is; those whose hidden state is asked for; and all
  // of these, which is what the last slice is needed for.
  std::vector<int> sampled, scored, embedded, kept;
  size_t first_prefill = 0;  // rows [first_prefill, tokens.size()) are prefill

  size_t size() const { return tokens.size(); }
  SequenceId sequence_of(int row) const { return attention[static_cast<size_t>(row)].sequence; }
  // The place in `kept` of a row that is there.
  size_t PlaceOf(int row) const {
    return static_cast<size_t>(std::ranges::lower_bound(kept, row) - kept.begin());
  }
};

// What this node knows of a sequence.
struct KnownSequence {
  std::vector<TokenId> tokens;  // prompt, then what was generated
  size_t num_prompt = 0;
  SamplingParams sampling;
  SequenceConstraint constraint;

  std::span<const TokenId> prompt() const { return std::span(tokens).first(num_prompt); }
  std::span<const TokenId> output() const { return std::span(tokens).subspan(num_prompt); }
  // So many of its first tokens have one behind them whose log-probability is asked for.
  size_t num_scoring() const {
    return sampling.num_prompt_logprobs < 0 || num_prompt == 0 ? 0 : num_prompt - 1;
  }
};

// The sequences that this node was told of. An order comes from another process, so it is checked
// against what is known here. Thread: one owner.
class KnownSequences {
 public:
  // Borrows the model.
  KnownSequences(const LoadedModel& model, const SessionLimits& limits)
      : model_(model), limits_(limits), constraints_(model) {}

  // Takes the tokens of new sequences out of the order, forgets those that it releases, and learns
  // the tokens that were sampled elsewhere.
  void Update(ComputeOrder& order);

  // Null if the sequence is not known.
  const KnownSequence* Find(SequenceId sequence) const;

  // What is to be chosen from for the next token of a sequence: its parameters, its tokens and
  // what its constraint allows. Borrowed until the sequence or the order changes. kNotFound: the
  // sequence is not known; other errors are those of TokenConstraints.
  Result<SampleWork> NextTokenOf(SequenceId sequence);
  // The step is over, and nothing is borrowed.
  void EndStep() { constraints_.Trim(); }

  // Lists the rows of an order. What cannot be computed is left out, and its sequence is added to
  // `failed`: with kRequest if the order contradicts itself, with kKvLost if it contradicts what is
  // known or stored here. `own_kv` is Capabilities::own_kv: tables there get what is shared or made
  // up. REQUIRES: Update was called with the order.
  StepRows RowsOf(const ComputeOrder& order, KvCache* own_kv,
                  std::vector<FailedSequence>& failed) const;

 private:
  void Learn(const ComputeWork& work);
  // Whether there can be such work, behind these rows.
  Status CheckWork(const ComputeWork& work, const StepRows& rows) const;
  // Whether it is about the sequence that is known here.
  Status CheckKnown(const ComputeWork& work) const;

  const LoadedModel& model_;
  const SessionLimits limits_;
  TokenConstraints constraints_;
  std::unordered_map<SequenceId, KnownSequence> sequences_;
};

}  // namespace lamina
