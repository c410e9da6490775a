// How a sequence's tokens are chosen, and what is told of a chosen one: the values that the
// manager, the messages and the kernels share. kernels/sampling.h chooses.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace lamina {

// Of SamplingParams::grammar and all of SamplingParams::bad_words. Each sequence takes its own
// along when it starts.
inline constexpr size_t kMaxGrammarBytes = size_t{2} << 20;
inline constexpr size_t kMaxBadWords = 1024;
inline constexpr size_t kMaxBadWordTokens = 8192;

struct TokenList {
  std::vector<TokenId> tokens = {};

  friend bool operator==(const TokenList&, const TokenList&) = default;
};

// How the tokens of one sequence are chosen. The defaults sample from the model's own distribution.
struct SamplingParams {
  // Below kLeastTemperature of kernels/sampling.h: greedy (ties: lowest id).
  float temperature = 1.0f;
  // Nucleus sampling: draw from the fewest most likely tokens that have at least this share of the
  // probability that top_k leaves. In (0, 1]; 1: off.
  float top_p = 1.0f;
  int32_t top_k = 0;   // draw from the k most likely tokens; 0: off
  float min_p = 0.0f;  // drop tokens less likely than min_p times the most likely one; [0, 1]
  // Logits of tokens that stand in the prompt or the output are divided by this if positive, else
  // multiplied (Keskar et al. 2019, section 4.1). 1: off.
  float repetition_penalty = 1.0f;
  // Subtracted from a token's logit for each time that it stands in the output.
  float frequency_penalty = 0.0f;
  // Subtracted from a token's logit once if it stands in the output.
  float presence_penalty = 0.0f;
  uint64_t seed = 0;
  int32_t num_logprobs = -1;  // -1: none; 0: of the chosen token; k: also of the k most likely
  // The same of each token of the prompt but the first: how likely it was behind those before it.
  int32_t num_prompt_logprobs = -1;
  // No token is chosen: what is asked for is the hidden state of the prompt's last token, as the
  // model's last norm leaves it for the logits.
  bool embeds = false;
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added to the logits of these tokens
  // Tokens that are not chosen while the output has fewer than min_tokens: eos and stop tokens.
  // They may be chosen where a text that `grammar` constrains is complete.
  std::vector<TokenId> banned = {};
  int32_t min_tokens = 0;
  // Sequences of tokens that the output does not contain; none is empty.
  std::vector<TokenList> bad_words = {};
  // The only tokens that are chosen, as TokenMask::bits; empty: all.
  std::string allowed_tokens = {};
  // Grammar::ToBytes of what the output's text has to be; empty: anything.
  std::string grammar = {};
};

// A token and the natural logarithm of its probability.
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

// A chosen token. All log-probabilities are those of the raw logits, before temperature, penalties
// and bias.
struct SampledToken {
  // -1: the logits were unusable, or nothing is left to choose from; nothing else is set then.
  TokenId token = 0;
  float logprob = 0;  // of `token`; set if num_logprobs >= 0
  int32_t rank = 0;   // of `token`, 1: the most likely; set if num_logprobs >= 0
  // The num_logprobs most likely tokens, the most likely first (ties: lowest id).
  std::vector<TokenLogprob> top = {};
};

// How likely a token of a prompt was behind those before it.
struct TokenScore {
  TokenId token = 0;  // -1: the logits were unusable; nothing else is set then
  float logprob = 0;
  int32_t rank = 0;  // 1: the most likely
  // The num_prompt_logprobs most likely tokens in its place, the most likely first (ties: lowest
  // id).
  std::vector<TokenLogprob> top = {};
};

}  // namespace lamina
