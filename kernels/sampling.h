// Chooses a sequence's next token from its row of logits, on the CPU. kernels/cuda/sampling.h does
// the same on a GPU. base/sampling_params.h has the parameters of both.
//
// The random generator is counter-based: the number that a token is drawn with is a function of
// (seed, position) alone. So the token depends neither on the batch or the node that computed it,
// nor on whether the sequence was preempted and recomputed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"
#include "base/token_mask.h"

namespace lamina {

// A lower temperature means greedy: dividing by it would magnify differences that are smaller than
// the rounding errors of fp32 logits, and the inverse of a still lower one overflows.
inline constexpr float kLeastTemperature = 1e-5f;
// A higher temperature is taken for this one: at this one already every token that the filters
// leave is equally likely, and its inverse is still a normal number.
inline constexpr float kMaxTemperature = 1e30f;

// The temperature that tokens are drawn with: 0 for greedy, which NaN means too, else between
// kLeastTemperature and kMaxTemperature.
inline float DrawTemperature(const SamplingParams& params) {
  return params.temperature >= kLeastTemperature ? std::min(params.temperature, kMaxTemperature)
                                                 : 0.0f;
}

// The tokens of a sequence, which penalties, min_tokens and bad words depend on. Borrows all of it.
struct SampleContext {
  std::span<const TokenId> prompt;
  std::span<const TokenId> output = {};  // generated so far
  // What may be chosen; its mask has the size of the vocabulary. Without a mask everything may.
  NextTokens next = {};
};

// One sequence whose next token is to be chosen, for samplers that take a batch at once. Borrows
// everything.
struct SampleWork {
  size_t row = 0;  // of the batch's logits, [rows, vocab]
  const SamplingParams* params = nullptr;
  SampleContext context;
};

// Chooses the next token from `logits`, [vocab] fp32, which are overwritten. The order is:
// logprobs from the raw logits; the mask; bias, bans, then penalties; temperature; top-k, top-p,
// min-p; draw. Where a text that may end has no token to go on with, min_tokens has no effect.
// The draw uses Random01(params.seed, prompt.size() + output.size()). Bias, bans and penalties for
// tokens outside the vocabulary are ignored.
//
// Returns token -1 if the logits hold a NaN or +inf or nothing finite, before or after the mask,
// bias, bans and penalties: the caller reports an error. Thread: any, one row each.
SampledToken Sample(std::span<float> logits, const SamplingParams& params,
                    const SampleContext& context);

// A token of a prompt, with the row of logits that was computed from the tokens before it.
struct ScoreWork {
  size_t row = 0;  // of the batch's logits, [rows, vocab]
  TokenId token = 0;
  int32_t num_top = 0;
};

// How likely a token of a prompt was, with the `num_top` most likely tokens, by `logits`, [vocab]
// fp32. Returns token -1 if the logits hold a
// NaN or +inf or nothing finite, or have no such token. Thread: any, one row each.
TokenScore Score(std::span<const float> logits, TokenId token, int32_t num_top);

// One change of one logit; LogitEdits says what `value` means.
struct LogitEdit {
  TokenId token = 0;
  float value = 0;
};

// How bias, bans and penalties change a row of logits: first all biases are applied, then all
// penalties.
struct LogitEdits {
  // Ascending by token, which may occur several times. The values are added to the logit in turn;
  // a value of -inf (a ban) makes the logit -inf.
  std::vector<LogitEdit> biases;
  // No token occurs twice. The logit is divided by repetition_penalty, or multiplied by it if it is
  // not positive; then the value is subtracted.
  std::vector<LogitEdit> penalties;
};

// Replaces `edits` by what `params` and `context` ask for in a row of `vocab` logits, without the
// mask. Tokens outside of [0, vocab) are left out. Thread: any.
void CollectEdits(const SamplingParams& params, const SampleContext& context, int64_t vocab,
                  LogitEdits& edits);

// Uniform in [0, 1), with 53 random bits, from a counter-based generator: Philox 4x32-10 (Salmon et
// al. 2011) with `position` as its counter and `seed` as its key.
double Random01(uint64_t seed, uint64_t position);

}  // namespace lamina
