// From logits to a token. Counter-based: the random number for a token is a function of (seed,
// position), so a result does not depend on the batch, the node or whether the sequence was
// preempted and recomputed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace lamina {

// Below: greedy. Such a temperature tells apart what differs by less than fp32 logits are exact,
// and its inverse overflows in the end.
inline constexpr float kLeastTemperature = 1e-5f;
// Above: taken for this. All that is left is equally likely then, and its inverse is still a normal
// number.
inline constexpr float kMaxTemperature = 1e30f;

struct SamplingParams {
  float temperature = 1.0f;         // below kLeastTemperature: greedy (ties: lowest id)
  float top_p = 1.0f;               // (0, 1]
  int32_t top_k = 0;                // 0: off
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // over prompt and output tokens, as in Keskar et al. 2019
  float frequency_penalty = 0.0f;   // over output tokens
  float presence_penalty = 0.0f;    // over output tokens
  uint64_t seed = 0;
  int32_t num_logprobs = -1;  // -1: none; 0: of the chosen token; k: also of the k most likely
  std::vector<std::pair<TokenId, float>> logit_bias;
  // Never chosen while fewer than min_tokens are generated (eos and stop tokens).
  std::vector<TokenId> banned;
  int32_t min_tokens = 0;
};

// What tokens are drawn with: 0, greedy, or between kLeastTemperature and kMaxTemperature. NaN is
// greedy.
inline float DrawTemperature(const SamplingParams& params) {
  return params.temperature >= kLeastTemperature ? std::min(params.temperature, kMaxTemperature)
                                                 : 0.0f;
}

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

struct SampledToken {
  TokenId token = 0;
  // Of the raw logits, before temperature, penalties and bias; set if num_logprobs >= 0.
  float logprob = 0;
  int32_t rank = 0;               // 1: the most likely; set if num_logprobs >= 0
  std::vector<TokenLogprob> top;  // num_logprobs of them, most likely first (ties: lowest id)
};

// What of a sequence the sampler looks at.
struct SampleContext {
  std::span<const TokenId> prompt;
  std::span<const TokenId> output;  // generated so far
};

// What the next token of row `row` of some logits is chosen with.
struct SampleWork {
  size_t row = 0;
  const SamplingParams* params = nullptr;
  SampleContext context;
};

// logits: [vocab] fp32, overwritten. Order: logprobs from raw logits; bias, bans, penalties;
// temperature; top-k, top-p, min-p; draw. The draw uses Random01(seed, position) with position =
// prompt.size() + output.size(). A NaN, a +inf or a row without any finite logit gives token -1:
// the caller reports an internal error. Tokens outside the vocabulary are ignored in bias, bans and
// penalties. Thread: any, one row each.
SampledToken Sample(std::span<float> logits, const SamplingParams& params,
                    const SampleContext& context);

// How bias, bans and penalties change a row of logits, token by token.
struct LogitEdit {
  TokenId token = 0;
  float value = 0;
};
struct LogitEdits {
  // Ascending by token: each value is added in turn; -inf: the logit becomes it.
  std::vector<LogitEdit> biases;
  // Then, no token twice: divided by repetition_penalty (multiplied, if not positive), less the
  // value.
  std::vector<LogitEdit> penalties;
};

// Those of a row of `vocab` logits; tokens outside of it are left out. Thread: any.
void CollectEdits(const SamplingParams& params, const SampleContext& context, int64_t vocab,
                  LogitEdits& edits);

// Uniform in [0, 1) from a counter-based generator (Philox 4x32-10, Salmon et al. 2011).
double Random01(uint64_t seed, uint64_t position);

}  // namespace lamina
