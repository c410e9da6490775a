#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "kernel_cases.h"

namespace lamina {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

SampledToken Draw(std::vector<float> logits, const SamplingParams& params,
                  const SampleContext& context = {}) {
  return Sample(logits, params, context);
}

// The distribution that `params` ask for, computed the long way: probability of each token, 0 if it
// cannot be drawn.
std::vector<double> Distribution(const std::vector<float>& logits, const SamplingParams& params,
                                 const SampleContext& context) {
  std::vector<double> l(logits.begin(), logits.end());
  for (const auto& [token, bias] : params.logit_bias) l[static_cast<size_t>(token)] += bias;
  if (static_cast<int32_t>(context.output.size()) < params.min_tokens) {
    for (TokenId token : params.banned) l[static_cast<size_t>(token)] = kNever;
  }
  std::map<TokenId, int> output;
  for (TokenId token : context.output) ++output[token];
  std::set<TokenId> seen(context.prompt.begin(), context.prompt.end());
  seen.insert(context.output.begin(), context.output.end());
  for (TokenId token : seen) {
    double& x = l[static_cast<size_t>(token)];
    x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
  }
  for (const auto& [token, count] : output) {
    l[static_cast<size_t>(token)] -=
        double{params.frequency_penalty} * count + params.presence_penalty;
  }
  for (double& x : l) x /= params.temperature;

  std::vector<size_t> order(l.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return l[a] > l[b]; });
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(params.top_k)));
  const auto normalised = [&] {
    std::vector<double> p;
    double sum = 0;
    for (size_t token : order) p.push_back(std::exp(l[token] - l[order[0]])), sum += p.back();
    for (double& x : p) x /= sum;
    return p;
  };
  std::vector<double> p = normalised();
  double sum = 0;
  size_t kept = 0;
  while (kept < p.size() && sum < params.top_p) sum += p[kept++];
  order.resize(kept);
  p = normalised();
  const double least = params.min_p * p[0];
  kept = 0;
  while (kept < p.size() && p[kept] >= least) ++kept;
  order.resize(kept);
  p = normalised();
  std::vector<double> all(l.size(), 0.0);
  for (size_t i = 0; i < order.size(); ++i) all[order[i]] = p[i];
  return all;
}

// Draws many times and compares the counts with the distribution: nothing impossible, and
// chi-square below its 0.1 % point.
void ExpectDistribution(const std::vector<float>& logits, SamplingParams params,
                        const SampleContext& context = {}) {
  constexpr int kDraws = 4000;
  const std::vector<double> expected = Distribution(logits, params, context);
  std::vector<int> count(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    params.seed = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ull;
    const SampledToken sampled = Draw(logits, params, context);
    ASSERT_GE(sampled.token, 0);
    ++count[static_cast<size_t>(sampled.token)];
  }
  double chi_square = 0, rest_expected = 0;
  int rest = 0, degrees = -1;
  for (size_t i = 0; i < count.size(); ++i) {
    EXPECT_TRUE(expected[i] > 0 || count[i] == 0) << "token " << i << " cannot be drawn";
    if (expected[i] * kDraws < 5) {  // rare tokens share a bin
      rest_expected += expected[i] * kDraws;
      rest += count[i];
      continue;
    }
    chi_square += std::pow(count[i] - expected[i] * kDraws, 2) / (expected[i] * kDraws);
    ++degrees;
  }
  if (rest_expected > 0) {
    chi_square += std::pow(rest - rest_expected, 2) / std::max(rest_expected, 5.0);
    ++degrees;
  }
  if (degrees < 1) return;  // one token is certain
  const double z = 3.09;    // 0.1 %; the chi-square quantile by Wilson and Hilferty
  const double quantile =
      degrees * std::pow(1 - 2.0 / (9 * degrees) + z * std::sqrt(2.0 / (9 * degrees)), 3);
  EXPECT_LT(chi_square, quantile) << degrees << " degrees of freedom";
}

TEST(Sampling, GreedyTakesTheLargestAndTheLowestIdOfEquals) {
  SamplingParams params;
  params.temperature = 0;
  EXPECT_EQ(Draw({1, 3, 2}, params).token, 1);
  EXPECT_EQ(Draw({1, 3, 3, 3}, params).token, 1);
  EXPECT_EQ(Draw({kNever, -5, kNever}, params).token, 1);
}

TEST(Sampling, GreedyHonoursBiasBansAndPenalties) {
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{2, 5.0f}, {99, 1.0f}, {-1, 1.0f}};
  EXPECT_EQ(Draw({1, 3, 2}, params).token, 2);
  params.banned = {2};
  params.min_tokens = 1;
  EXPECT_EQ(Draw({1, 3, 2}, params).token, 1);
  const std::vector<TokenId> output = {1};
  EXPECT_EQ(Draw({1, 3, 2}, params, {{}, output}).token, 2) << "min_tokens is reached";
  SamplingParams penalised;
  penalised.temperature = 0;
  penalised.presence_penalty = 2.5f;
  EXPECT_EQ(Draw({1, 3, 2}, penalised, {{}, output}).token, 2);
  EXPECT_EQ(Draw({1, 3, 2}, penalised, {output, {}}).token, 1)
      << "presence is about the output only";
}

TokenMask MaskOf(const std::vector<TokenId>& tokens, int64_t vocab) {
  TokenMask mask{std::string(TokenMaskBytes(vocab), '\0')};
  for (const TokenId token : tokens) AddToken(token, mask);
  return mask;
}

TEST(Sampling, OnlyTokensOfTheMaskAreChosen) {
  const std::vector<float> logits = RandomFloats(40, 1, 3);
  const TokenMask mask = MaskOf({1, 8, 15, 16, 39}, 40);
  SamplingParams params;
  params.temperature = 2;
  params.banned = {7};
  std::set<TokenId> chosen, with_end;
  for (params.seed = 0; params.seed < 400; ++params.seed) {
    chosen.insert(Draw(logits, params, {{}, {}, {&mask, false}}).token);
    with_end.insert(Draw(logits, params, {{}, {}, {&mask, true}}).token);
  }
  EXPECT_EQ(chosen, (std::set<TokenId>{1, 8, 15, 16, 39}));
  EXPECT_EQ(with_end, (std::set<TokenId>{1, 7, 8, 15, 16, 39}));
  // The end is banned before min_tokens, unless nothing else may follow.
  params.min_tokens = 3;
  std::set<TokenId> before;
  for (params.seed = 0; params.seed < 400; ++params.seed)
    before.insert(Draw(logits, params, {{}, {}, {&mask, true}}).token);
  EXPECT_EQ(before, chosen);
  const TokenMask none = MaskOf({}, 40);
  EXPECT_EQ(Draw(logits, params, {{}, {}, {&none, true}}).token, 7);
  EXPECT_EQ(Draw(logits, params, {{}, {}, {&none, false}}).token, -1);
}

TEST(Sampling, LogprobsAreThoseWithoutTheMask) {
  SamplingParams params;
  params.temperature = 0;
  params.num_logprobs = 1;
  const TokenMask mask = MaskOf({0}, 3);
  const SampledToken sampled = Draw({1, 3, 2}, params, {{}, {}, {&mask, false}});
  EXPECT_EQ(sampled.token, 0);
  EXPECT_EQ(sampled.rank, 3);
  ASSERT_EQ(sampled.top.size(), 1u);
  EXPECT_EQ(sampled.top[0].token, 1);
}

TEST(Sampling, BadWordsAreNotCompleted) {
  SamplingParams params;
  params.temperature = 0;
  params.bad_words = {{{1}}, {{0, 2}}, {{5, 5, 2}}};
  const std::vector<TokenId> other = {5, 0, 0}, begun = {5, 0}, twice = {0, 5, 5};
  EXPECT_EQ(Draw({1, 3, 2}, params).token, 2);
  EXPECT_EQ(Draw({1, 3, 2}, params, {begun, {}}).token, 2) << "the prompt does not count";
  EXPECT_EQ(Draw({1, 3, 2}, params, {{}, begun}).token, 0);
  EXPECT_EQ(Draw({1, 3, 2}, params, {{}, other}).token, 0);
  EXPECT_EQ(Draw({1, 3, 2}, params, {{}, twice}).token, 0);
  const std::vector<TokenId> once = {0, 5};
  EXPECT_EQ(Draw({1, 3, 2}, params, {{}, once}).token, 2);
}

TEST(Sampling, DrawsFollowTheSoftmax) {
  const std::vector<float> logits = RandomFloats(40, 1, 3);
  SamplingParams params;
  for (float temperature : {0.3f, 1.0f, 2.0f}) {
    params.temperature = temperature;
    ExpectDistribution(logits, params);
  }
}

TEST(Sampling, DrawsFollowEachFilterAndAllTogether) {
  const std::vector<float> logits = RandomFloats(300, 2, 4);
  SamplingParams top_k, top_p, min_p, all;
  top_k.top_k = 7;
  top_p.top_p = 0.8f;
  min_p.min_p = 0.2f;
  all.temperature = 1.5f;
  all.top_k = 50;
  all.top_p = 0.95f;
  all.min_p = 0.05f;
  for (const SamplingParams& params : {top_k, top_p, min_p, all})
    ExpectDistribution(logits, params);
}

TEST(Sampling, DrawsFollowPenaltiesAndBias) {
  const std::vector<float> logits = RandomFloats(30, 3, 2);
  const std::vector<TokenId> prompt = {1, 2, 3, 3, 3}, output = {3, 4, 4, 4, 5};
  SamplingParams params;
  params.repetition_penalty = 1.7f;
  params.frequency_penalty = 0.4f;
  params.presence_penalty = 0.6f;
  params.logit_bias = {{7, 1.5f}, {8, -2.0f}};
  params.banned = {9, 10};
  params.min_tokens = 6;
  ExpectDistribution(logits, params, {prompt, output});
}

TEST(Sampling, EditsAreListedByTokenAndOnlyThoseOfTheVocabulary) {
  SamplingParams params;
  params.logit_bias = {{3, 1.0f}, {1, 2.0f}, {3, -4.0f}, {9, 1.0f}, {-1, 1.0f}};
  params.banned = {3, 9, 0};
  params.min_tokens = 5;
  params.frequency_penalty = 0.5f;
  params.presence_penalty = 0.25f;
  const std::vector<TokenId> prompt = {2, 4, 2, 9}, output = {4, 0, 4, -1};
  const auto listed = [](const std::vector<LogitEdit>& edits) {
    std::vector<std::pair<TokenId, float>> pairs;
    for (const LogitEdit& edit : edits) pairs.emplace_back(edit.token, edit.value);
    return pairs;
  };
  using Pairs = std::vector<std::pair<TokenId, float>>;
  LogitEdits edits;
  for (int i = 0; i < 2; ++i) {  // the second time with what the first left behind
    CollectEdits(params, {prompt, output}, 9, edits);
    EXPECT_EQ(listed(edits.biases),
              (Pairs{{0, kNever}, {1, 2.0f}, {3, 1.0f}, {3, -4.0f}, {3, kNever}}));
    EXPECT_EQ(listed(edits.penalties), (Pairs{{4, 1.25f}, {0, 0.75f}, {2, 0.0f}}));
  }
  CollectEdits({}, {prompt, output}, 9, edits);
  EXPECT_TRUE(edits.biases.empty() && edits.penalties.empty());
}

TEST(Sampling, TopPKeepsTheTokenThatCrossesAndAtLeastOne) {
  SamplingParams params;
  params.top_p = 1e-6f;
  ExpectDistribution({0.1f, 0.3f, 0.2f}, params);
  params.top_p = 0.5f;
  ExpectDistribution({0, 0, 0, 0}, params);  // equal logits: tokens 0 and 1
  params.top_p = 0.9999f;
  ExpectDistribution(std::vector<float>(1000, 1.0f), params);
}

TEST(Sampling, TopKTiesGoToLowIds) {
  SamplingParams params;
  params.top_k = 2;
  ExpectDistribution({1, 1, 1, 1}, params);
}

TEST(Sampling, AVocabularyOfManyThousandsWorks) {
  std::vector<float> logits = RandomFloats(128256, 4, 1);
  logits[100000] = 14;
  SamplingParams params;
  params.top_p = 0.9f;
  std::map<TokenId, int> seen;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    params.seed = seed;
    ++seen[Draw(logits, params).token];
  }
  const double p = Distribution(logits, params, {})[100000];
  EXPECT_NEAR(seen[100000], 40 * p, 12);
}

TEST(Sampling, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits = RandomFloats(1000, 5, 0.1f);
  SamplingParams params;
  params.seed = 123;
  const std::vector<TokenId> tokens(20, 0);
  const std::span<const TokenId> all(tokens);
  const TokenId first = Draw(logits, params, {all.first(4), all.first(6)}).token;
  EXPECT_EQ(Draw(logits, params, {all.first(4), all.first(6)}).token, first);
  EXPECT_EQ(Draw(logits, params, {all.first(9), all.first(1)}).token, first)
      << "the position alone counts, not where the prompt ends";
  std::set<TokenId> others;
  for (size_t n = 0; n < 20; ++n) others.insert(Draw(logits, params, {all.first(n), {}}).token);
  EXPECT_GT(others.size(), 15u);
  others.clear();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    params.seed = seed;
    others.insert(Draw(logits, params).token);
  }
  EXPECT_GT(others.size(), 15u);
}

TEST(Sampling, IsTheSameOnEveryIsa) {
  const std::vector<float> logits = RandomFloats(5000, 6, 2);
  SamplingParams params;
  params.top_p = 0.9f;
  params.num_logprobs = 3;
  for (params.seed = 0; params.seed < 50; ++params.seed) {
    std::vector<std::pair<TokenId, float>> got;
    for (CpuIsa isa : SupportedIsas()) {
      const WithIsa with(isa);
      const SampledToken sampled = Draw(logits, params);
      got.emplace_back(sampled.token, sampled.logprob);
    }
    EXPECT_EQ(std::count(got.begin(), got.end(), got[0]), static_cast<int64_t>(got.size()));
  }
}

TEST(Sampling, LogprobsAreOfTheRawLogits) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f};
  double sum = 0;
  for (float l : logits) sum += std::exp(double{l});
  SamplingParams params;
  params.temperature = 0;
  params.num_logprobs = 3;
  params.logit_bias = {{2, 10.0f}};
  const SampledToken sampled = Draw(logits, params);
  EXPECT_EQ(sampled.token, 2);
  EXPECT_EQ(sampled.rank, 3);
  EXPECT_NEAR(sampled.logprob, 2.0 - std::log(sum), 1e-6);
  ASSERT_EQ(sampled.top.size(), 3u);
  EXPECT_EQ(sampled.top[0].token, 1);
  EXPECT_EQ(sampled.top[1].token, 3);
  EXPECT_EQ(sampled.top[2].token, 2);
  EXPECT_NEAR(sampled.top[0].logprob, 3.0 - std::log(sum), 1e-6);
}

TEST(Sampling, LogprobsOfTheChosenTokenAloneAndMoreThanThereAre) {
  SamplingParams params;
  params.temperature = 0;
  params.num_logprobs = 0;
  const SampledToken chosen = Draw({0, 1}, params);
  EXPECT_EQ(chosen.rank, 1);
  EXPECT_TRUE(chosen.top.empty());
  EXPECT_NEAR(chosen.logprob, -std::log(1 + std::exp(-1.0)), 1e-6);
  params.num_logprobs = 10;
  EXPECT_EQ(Draw({0, 1}, params).top.size(), 2u);
}

TEST(Sampling, ABrokenRowGivesNoToken) {
  SamplingParams greedy, random;
  greedy.temperature = 0;
  for (const SamplingParams& params : {greedy, random}) {
    EXPECT_EQ(Draw({1, NAN, 2}, params).token, -1);
    EXPECT_EQ(Draw({kNever, kNever}, params).token, -1);
    EXPECT_EQ(Draw({1, -kNever}, params).token, -1);
    EXPECT_EQ(Draw({}, params).token, -1);
  }
  random.banned = {0, 1};
  random.min_tokens = 1;
  EXPECT_EQ(Draw({1, 2}, random).token, -1) << "everything is banned";
}

TEST(Sampling, TheLowestTemperaturesAreGreedy) {
  const std::vector<float> logits = {-300, 5, 700, 700, kNever, 699};
  for (const float temperature :
       {0.0f, -1.0f, 1e-45f, 1e-40f, 2.9e-39f, 2.95e-39f, 1e-38f, 1e-30f, 1e-6f, 9.9e-6f, NAN}) {
    SamplingParams params;
    params.temperature = temperature;
    for (params.seed = 0; params.seed < 20; ++params.seed) {
      EXPECT_EQ(Draw(logits, params).token, 2) << temperature;
      params.top_p = params.seed % 2 == 0 ? 0.5f : 1.0f;
      params.min_p = params.seed % 3 == 0 ? 0.5f : 0.0f;
    }
  }
}

TEST(Sampling, TheLeastTemperatureThatDrawsChoosesAmongEquals) {
  SamplingParams params;
  params.temperature = kLeastTemperature;
  std::map<TokenId, int> seen;
  for (params.seed = 0; params.seed < 200; ++params.seed)
    ++seen[Draw({-300, 5, 700, 700, kNever, 699}, params).token];
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_NEAR(seen[2], 100, 40);
  EXPECT_NEAR(seen[3], 100, 40);
}

TEST(Sampling, TheHighestTemperaturesMakeAllThatIsLeftEquallyLikely) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const float temperature : {1e6f, 1e30f, kLargest, -kNever}) {
    SamplingParams params;
    params.temperature = temperature;
    for (const float min_p : {0.0f, 0.5f, 1.0f}) {
      params.min_p = min_p;
      std::map<TokenId, int> seen;
      for (params.seed = 0; params.seed < 400; ++params.seed)
        ++seen[Draw({-3, 5, kNever, 7}, params).token];
      EXPECT_EQ(seen.count(2), 0u) << "it is banned";
      EXPECT_EQ(seen.count(-1), 0u);
      for (const TokenId token : {0, 1, 3}) {
        EXPECT_TRUE(min_p == 1 || std::abs(seen[token] - 133) < 60)
            << seen[token] << " of " << token << " at " << temperature;
      }
      EXPECT_GE(Draw({-kLargest, kLargest, 0}, params).token, 0);
    }
  }
}

TEST(Sampling, ExtremeSettingsStayDefined) {
  SamplingParams params;
  params.temperature = 1e-6f;
  EXPECT_EQ(Draw({-300, 5, 700}, params).token, 2);
  params.temperature = 1.0f;
  params.min_p = 1.0f;
  EXPECT_EQ(Draw({-300, 5, 700}, params).token, 2);
  EXPECT_EQ(Draw({kNever, kNever, -1e30f}, params).token, 2);
}

TEST(Score, IsTheLogSoftmaxAndTheRankOfTheGivenToken) {
  const std::vector<float> logits = {1.5f, -2.0f, 1.5f, 0.25f, kNever, 3.0f};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  const std::vector<int32_t> ranks = {2, 5, 3, 4, 6, 1};  // of equals the lower id is first
  const std::vector<TokenId> order = {5, 0, 2, 3, 1, 4};
  for (TokenId token = 0; token < 6; ++token) {
    const TokenScore scored = Score(logits, token, 4);
    const auto i = static_cast<size_t>(token);
    EXPECT_EQ(scored.token, token);
    EXPECT_EQ(scored.rank, ranks[i]);
    if (token != 4) {
      EXPECT_NEAR(scored.logprob, logits[i] - std::log(sum), 1e-6);
    } else {
      EXPECT_EQ(scored.logprob, kNever);
    }
    ASSERT_EQ(scored.top.size(), 4u);
    for (size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(scored.top[k].token, order[k]);
      EXPECT_NEAR(scored.top[k].logprob, logits[static_cast<size_t>(order[k])] - std::log(sum),
                  1e-6);
    }
  }
  EXPECT_TRUE(Score(logits, 2, 0).top.empty());
}

TEST(Score, HasNothingToSayOfLogitsThatAreNoNumbersOrLackTheToken) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Score(std::vector<float>{1, nan}, 0, 1).token, -1);
  EXPECT_EQ(Score(std::vector<float>{1, -kNever}, 0, 1).token, -1);
  EXPECT_EQ(Score(std::vector<float>{kNever, kNever}, 0, 1).token, -1);
  EXPECT_EQ(Score(std::vector<float>{1, 2}, 2, 1).token, -1);
  EXPECT_EQ(Score(std::vector<float>{1, 2}, -1, 1).token, -1);
}

}  // namespace
}  // namespace lamina
