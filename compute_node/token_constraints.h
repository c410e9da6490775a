// Which tokens a sequence may be given next, where its request constrains them.
#pragma once

#include <optional>
#include <span>

#include "base/ids.h"
#include "base/sampling_params.h"
#include "base/status.h"
#include "base/token_mask.h"
#include "compute_node/compute_device.h"
#include "grammar/constrained_text.h"

namespace lamina {

// What is kept of a sequence to answer faster. A new one stands for any sequence.
struct SequenceConstraint {
  std::optional<ConstrainedText> text;
  TokenMask listed;  // SamplingParams::allowed_tokens
  TokenMask both;    // that the list and the text allow
};

// The constraints of a session's sequences. Thread: one owner.
class TokenConstraints {
 public:
  // Borrows the model.
  explicit TokenConstraints(const LoadedModel& model) : model_(model) {}

  // What may follow `output`; without a mask if that is everything. The mask is borrowed until the
  // next call for the sequence, or Trim. kInvalidArgument: the parameters or the output contradict
  // themselves or each other, or nothing may follow; other errors are those of the model's
  // tokenizer, which the first grammar waits for.
  Result<NextTokens> Next(const SamplingParams& params, std::span<const TokenId> output,
                          SequenceConstraint& kept);
  // Drops what is kept beyond a limit. To be called between steps.
  void Trim() {
    if (automata_) automata_->Trim();
  }

 private:
  Status BeginText(const SamplingParams& params, SequenceConstraint& kept);
  Status TakeList(const SamplingParams& params, SequenceConstraint& kept) const;

  const LoadedModel& model_;
  std::optional<Automata> automata_;  // empty until there is a grammar
};

}  // namespace lamina
