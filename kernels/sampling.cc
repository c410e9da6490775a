#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/kernel_table.h"
#include "kernels/philox.h"

namespace lamina {
namespace {

// All spans of logits below are [vocab] fp32.

constexpr float kNever = -std::numeric_limits<float>::infinity();  // the logit of a banned token

bool InVocab(TokenId token, int64_t vocab) { return token >= 0 && token < vocab; }

// Whether the row can be sampled from: no NaN, no +inf, something finite.
bool IsSane(std::span<const float> logits) {
  bool any_finite = false;
  for (float l : logits) {
    if (std::isnan(l) || l == -kNever) return false;
    any_finite |= l != kNever;
  }
  return any_finite;
}

// Orders tokens: the more likely first, of equals the one with the lower id.
struct ByLogit {
  std::span<const float> logits;
  bool operator()(TokenId a, TokenId b) const {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  }
};

float MaxOf(std::span<const float> logits) {
  return *std::max_element(logits.begin(), logits.end());
}

// Sum of exp(logit - max) over the row, added in double: the vocabulary may have 10^5 and more
// terms, most of them small.
double SumExp(std::span<const float> logits, float max) {
  static thread_local std::vector<float> weights;
  weights.resize(logits.size());
  ActiveKernels().exp_scaled(logits.data(), max, 1.0f, static_cast<int64_t>(logits.size()),
                             weights.data());
  double sum = 0;
  for (float w : weights) sum += w;
  return sum;
}

std::vector<TokenLogprob> TopLogprobs(std::span<const float> raw, int32_t num, double log_sum) {
  std::vector<TokenId> ids(raw.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
  const size_t count = std::min(ids.size(), static_cast<size_t>(num));
  std::partial_sort(ids.begin(), ids.begin() + static_cast<int64_t>(count), ids.end(),
                    ByLogit{raw});
  std::vector<TokenLogprob> top;
  top.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    top.push_back({ids[i], static_cast<float>(raw[static_cast<size_t>(ids[i])] - log_sum)});
  }
  return top;
}

// REQUIRES: the logits are sane and have the token.
TokenScore ScoreOf(std::span<const float> raw, TokenId token, int32_t num_top) {
  const float max = MaxOf(raw);
  const double log_sum = max + std::log(SumExp(raw, max));
  const float own = raw[static_cast<size_t>(token)];
  TokenScore score{token, static_cast<float>(own - log_sum), 1};
  for (size_t i = 0; i < raw.size(); ++i)
    score.rank += raw[i] > own || (raw[i] == own && static_cast<TokenId>(i) < token);
  if (num_top > 0) score.top = TopLogprobs(raw, num_top, log_sum);
  return score;
}

// Repetition penalty (Keskar et al. 2019, section 4.1) over prompt and output; frequency and
// presence over the output.
void CollectPenalties(const SamplingParams& params, const SampleContext& context, int64_t vocab,
                      std::vector<LogitEdit>& penalties) {
  if (params.repetition_penalty == 1.0f && params.frequency_penalty == 0.0f &&
      params.presence_penalty == 0.0f)
    return;
  // By token, how often it stands in the output; -1: only in the prompt. All are 0 again when the
  // function returns, which costs the tokens seen and not the vocabulary.
  static thread_local std::vector<int32_t> output_count;
  output_count.resize(std::max(output_count.size(), static_cast<size_t>(vocab)));
  for (TokenId token : context.output) {
    if (InVocab(token, vocab) && output_count[static_cast<size_t>(token)]++ == 0)
      penalties.push_back({token, 0});
  }
  for (TokenId token : context.prompt) {
    if (!InVocab(token, vocab) || output_count[static_cast<size_t>(token)] != 0) continue;
    output_count[static_cast<size_t>(token)] = -1;
    penalties.push_back({token, 0});
  }
  for (LogitEdit& penalty : penalties) {
    const int32_t count = std::exchange(output_count[static_cast<size_t>(penalty.token)], 0);
    if (count > 0)
      penalty.value =
          params.frequency_penalty * static_cast<float>(count) + params.presence_penalty;
  }
}

// Leaves the logits of tokens that may be chosen.
void MaskLogits(std::span<float> logits, const SamplingParams& params,
                const SampleContext& context) {
  if (context.next.tokens == nullptr) return;
  static thread_local std::vector<std::pair<TokenId, float>> ends;
  ends.clear();
  for (const TokenId token : params.banned) {
    if (context.next.may_end && InVocab(token, std::ssize(logits)))
      ends.emplace_back(token, logits[static_cast<size_t>(token)]);
  }
  const std::string& bits = context.next.tokens->bits;
  for (size_t first = 0; first < logits.size(); first += 8) {
    const auto eight = static_cast<uint8_t>(bits[first / 8]);
    if (eight == 0xFF) continue;
    for (size_t i = first; i < std::min(first + 8, logits.size()); ++i) {
      if ((eight >> (i - first) & 1) == 0) logits[i] = kNever;
    }
  }
  for (const auto& [token, logit] : ends) logits[static_cast<size_t>(token)] = logit;
}

// The last token of a bad word whose others end the output.
void BanBadWords(const SamplingParams& params, const SampleContext& context, int64_t vocab,
                 std::vector<LogitEdit>& biases) {
  for (const TokenList& word : params.bad_words) {
    if (word.tokens.empty() || word.tokens.size() - 1 > context.output.size()) continue;
    const std::span<const TokenId> before(word.tokens.data(), word.tokens.size() - 1);
    if (InVocab(word.tokens.back(), vocab) &&
        std::ranges::equal(before, context.output.last(before.size())))
      biases.push_back({word.tokens.back(), kNever});
  }
}

void EditLogits(std::span<float> logits, const SamplingParams& params,
                const SampleContext& context) {
  static thread_local LogitEdits edits;
  CollectEdits(params, context, std::ssize(logits), edits);
  for (const LogitEdit& bias : edits.biases) {
    float& l = logits[static_cast<size_t>(bias.token)];
    l = bias.value == kNever ? kNever : l + bias.value;  // an earlier bias of +inf would give NaN
  }
  for (const LogitEdit& penalty : edits.penalties) {
    float& l = logits[static_cast<size_t>(penalty.token)];
    l = l > 0 ? l / params.repetition_penalty : l * params.repetition_penalty;
    l -= penalty.value;
  }
}

// The tokens that may be drawn, and how likely each is: exp((logit - max) / temperature).
struct Candidates {
  std::vector<TokenId> ids;    // by id until a filter sorts them
  std::vector<float> weights;  // [ids.size()], set by Weigh
};

void Weigh(std::span<const float> logits, float max, float temperature, Candidates& c) {
  c.weights.resize(c.ids.size());
  for (size_t i = 0; i < c.ids.size(); ++i) c.weights[i] = logits[static_cast<size_t>(c.ids[i])];
  ActiveKernels().exp_scaled(c.weights.data(), max, 1.0f / temperature,
                             static_cast<int64_t>(c.ids.size()), c.weights.data());
}

double Total(const Candidates& c) {
  double total = 0;
  for (float w : c.weights) total += w;
  return total;
}

void KeepTopK(std::span<const float> logits, int32_t top_k, Candidates& c) {
  const auto k = static_cast<size_t>(top_k);
  if (top_k <= 0 || k >= c.ids.size()) return;
  std::nth_element(c.ids.begin(), c.ids.begin() + static_cast<int64_t>(k), c.ids.end(),
                   ByLogit{logits});
  c.ids.resize(k);
}

// Keeps the fewest most likely tokens that together have top_p of what top-k left (nucleus
// sampling, Holtzman et al. 2020).
//
// A large vocabulary is not sorted as a whole. At most ids.size() tokens are dropped in the end,
// with a weight of total - enough together. All tokens lighter than that weight's average, `least`,
// weigh less than it together, so none of them is needed; they go before the sort.
void KeepTopP(std::span<const float> logits, const SamplingParams& params, float max,
              Candidates& c) {
  if (params.top_p >= 1.0f) return;
  Weigh(logits, max, DrawTemperature(params), c);
  const double total = Total(c), enough = params.top_p * total;
  const double least = (total - enough) / static_cast<double>(c.ids.size());
  size_t n = 0;
  for (size_t i = 0; i < c.ids.size(); ++i) {
    if (c.weights[i] >= least) c.ids[n++] = c.ids[i];
  }
  c.ids.resize(n);
  std::sort(c.ids.begin(), c.ids.end(), ByLogit{logits});
  Weigh(logits, max, DrawTemperature(params), c);
  double sum = 0;
  size_t kept = 0;
  while (kept < n && sum < enough) sum += c.weights[kept++];
  c.ids.resize(std::max<size_t>(kept, 1));
}

void KeepMinP(std::span<const float> logits, const SamplingParams& params, float max,
              Candidates& c) {
  if (params.min_p <= 0.0f) return;
  const float least = max + DrawTemperature(params) * std::log(params.min_p);
  std::erase_if(c.ids, [&](TokenId token) { return logits[static_cast<size_t>(token)] < least; });
}

TokenId Draw(std::span<const float> logits, const SamplingParams& params, uint64_t position) {
  static thread_local Candidates c;
  const float max = MaxOf(logits);
  c.ids.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kNever) c.ids.push_back(static_cast<TokenId>(i));
  }
  KeepTopK(logits, params.top_k, c);
  KeepTopP(logits, params, max, c);
  KeepMinP(logits, params, max, c);
  // Candidates are drawn from in order of id, whichever filters ran: nth_element leaves an order of
  // its own, and the sampler for GPUs sums up the row in order of id too.
  if (!std::is_sorted(c.ids.begin(), c.ids.end())) std::sort(c.ids.begin(), c.ids.end());
  Weigh(logits, max, DrawTemperature(params), c);
  const double target = Random01(params.seed, position) * Total(c);
  double sum = 0;
  for (size_t i = 0; i < c.ids.size(); ++i) {
    sum += c.weights[i];
    if (sum > target) return c.ids[i];
  }
  return c.ids.back();  // rounding can make the product equal the total
}

}  // namespace

void CollectEdits(const SamplingParams& params, const SampleContext& context, int64_t vocab,
                  LogitEdits& edits) {
  edits.biases.clear();
  edits.penalties.clear();
  for (const auto& [token, bias] : params.logit_bias) {
    if (InVocab(token, vocab)) edits.biases.push_back({token, bias});
  }
  const bool has_to_end = context.next.tokens != nullptr && context.next.tokens->count == 0;
  if (std::ssize(context.output) < params.min_tokens && !has_to_end) {
    for (TokenId token : params.banned) {
      if (InVocab(token, vocab)) edits.biases.push_back({token, kNever});
    }
  }
  BanBadWords(params, context, vocab, edits.biases);
  // By token, as the GPU's kernel needs them. Stable, since several biases of a token are added in
  // the order in which they were given, and a ban comes last.
  std::ranges::stable_sort(edits.biases, {}, &LogitEdit::token);
  CollectPenalties(params, context, vocab, edits.penalties);
}

SampledToken Sample(std::span<float> logits, const SamplingParams& params,
                    const SampleContext& context) {
  static thread_local std::vector<float> raw;
  SampledToken sampled;
  sampled.token = -1;
  if (!IsSane(logits)) return sampled;
  const bool wants_logprobs = params.num_logprobs >= 0;
  if (wants_logprobs) raw.assign(logits.begin(), logits.end());
  MaskLogits(logits, params, context);
  EditLogits(logits, params, context);
  if (!IsSane(logits)) return sampled;  // bans may leave nothing, biases may overflow
  if (DrawTemperature(params) == 0.0f) {
    // max_element returns the first of equals, the lowest id.
    sampled.token =
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  } else {
    sampled.token = Draw(logits, params, context.prompt.size() + context.output.size());
  }
  if (wants_logprobs) {
    TokenScore score = ScoreOf(raw, sampled.token, params.num_logprobs);
    sampled.logprob = score.logprob;
    sampled.rank = score.rank;
    sampled.top = std::move(score.top);
  }
  return sampled;
}

TokenScore Score(std::span<const float> logits, TokenId token, int32_t num_top) {
  if (!IsSane(logits) || !InVocab(token, std::ssize(logits))) return {.token = -1};
  return ScoreOf(logits, token, num_top);
}

double Random01(uint64_t seed, uint64_t position) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto bits =
      Philox4x32({low(position), low(position >> 32), 0, 0}, {low(seed), low(seed >> 32)});
  // 53 bits are what a double holds exactly, so 1 is never reached by rounding.
  return static_cast<double>((uint64_t{bits[0]} << 32 | bits[1]) >> 11) * 0x1p-53;
}

}  // namespace lamina
