#include "compute_node/token_constraints.h"

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace lamina {
namespace {

int64_t CountTokens(const std::string& bits) {
  int64_t count = 0;
  for (const char eight : bits) count += std::popcount(static_cast<uint8_t>(eight));
  return count;
}

}  // namespace

Result<NextTokens> TokenConstraints::Next(const SamplingParams& params,
                                          std::span<const TokenId> output,
                                          SequenceConstraint& kept) {
  NextTokens next;
  if (!params.allowed_tokens.empty()) {
    LAMINA_RETURN_IF_ERROR(TakeList(params, kept));
    next.tokens = &kept.listed;
  }
  if (params.grammar.empty()) return next;
  if (!kept.text) LAMINA_RETURN_IF_ERROR(BeginText(params, kept));
  LAMINA_ASSIGN_OR_RETURN(const NextTokens of_text, kept.text->Next(output));
  next.may_end = of_text.may_end;
  if (next.tokens == nullptr) {
    next.tokens = of_text.tokens;
  } else {
    kept.both.bits = kept.listed.bits;
    for (size_t i = 0; i < kept.both.bits.size(); ++i)
      kept.both.bits[i] = static_cast<char>(kept.both.bits[i] & of_text.tokens->bits[i]);
    kept.both.count = CountTokens(kept.both.bits);
    next.tokens = &kept.both;
  }
  const bool can_end = next.may_end && !params.banned.empty();
  if (next.tokens->count == 0 && !can_end)
    return InvalidArgument(
        "no token of the vocabulary can continue the text as the request demands it");
  return next;
}

Status TokenConstraints::BeginText(const SamplingParams& params, SequenceConstraint& kept) {
  if (!automata_) {
    Result<std::shared_ptr<const Vocabulary>> vocabulary = model_.vocabulary->Get();
    if (!vocabulary.ok())
      return Status(vocabulary.status().code(),
                    "the compute node needs the model's tokenizer for constrained output: " +
                        vocabulary.status().message());
    automata_.emplace(*std::move(vocabulary));
  }
  LAMINA_ASSIGN_OR_RETURN(kept.text, automata_->Begin(params.grammar));
  return OkStatus();
}

Status TokenConstraints::TakeList(const SamplingParams& params, SequenceConstraint& kept) const {
  if (!kept.listed.bits.empty()) return OkStatus();
  if (params.allowed_tokens.size() != TokenMaskBytes(model_.config.vocab_size))
    return InvalidArgument("the allowed tokens are not those of this model's vocabulary");
  kept.listed = {params.allowed_tokens, CountTokens(params.allowed_tokens)};
  if (kept.listed.count == 0) return InvalidArgument("no token is allowed");
  return OkStatus();
}

}  // namespace lamina
