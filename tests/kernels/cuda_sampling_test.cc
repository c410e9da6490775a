#if LAMINA_HAS_CUDA
#include "kernels/cuda/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <string>

#include "base/worker_team.h"
#include "cuda_cases.h"
#include "kernel_cases.h"
#include "kernels/cuda/host/sampler.h"
#include "kernels/sampling.h"

namespace lamina::cuda {
namespace cuda_sampling_test {

constexpr float kNever = -INFINITY;
constexpr double kBound = 4e-6;  // as kernels/cuda/sampling.h says, of exact arithmetic

// A row and what it is sampled with.
struct Case {
  std::string name;
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> prompt, output;

  SampleContext context() const { return {prompt, output}; }
};

SampledToken OnTheHost(const Case& c) {
  std::vector<float> logits = c.logits;
  return Sample(logits, c.params, c.context());
}

// Edited logits, the long way.
std::vector<float> Edited(const Case& c) {
  std::vector<float> l = c.logits;
  const auto in_vocab = [&](TokenId token) { return token >= 0 && token < std::ssize(l); };
  for (const auto& [token, bias] : c.params.logit_bias) {
    if (in_vocab(token)) l[static_cast<size_t>(token)] += bias;
  }
  for (const TokenId token : c.params.banned) {
    if (in_vocab(token) && std::ssize(c.output) < c.params.min_tokens)
      l[static_cast<size_t>(token)] = kNever;
  }
  std::set<TokenId> seen(c.prompt.begin(), c.prompt.end());
  seen.insert(c.output.begin(), c.output.end());
  for (const TokenId token : seen) {
    if (!in_vocab(token)) continue;
    float& x = l[static_cast<size_t>(token)];
    x = x > 0 ? x / c.params.repetition_penalty : x * c.params.repetition_penalty;
    const auto count = static_cast<float>(std::count(c.output.begin(), c.output.end(), token));
    if (count > 0) x -= c.params.frequency_penalty * count + c.params.presence_penalty;
  }
  return l;
}

// Whether exact arithmetic may draw `token`, if the borders of the draw and of top-p lie within
// kBound of where they are.
bool MayBeDrawn(const Case& c, TokenId token) {
  const std::vector<float> l = Edited(c);
  std::vector<size_t> ids(l.size());
  std::iota(ids.begin(), ids.end(), size_t{0});
  std::stable_sort(ids.begin(), ids.end(), [&](size_t a, size_t b) { return l[a] > l[b]; });
  if (c.params.temperature < kLeastTemperature) return token == static_cast<TokenId>(ids[0]);
  std::erase_if(ids, [&](size_t id) { return l[id] == kNever; });
  if (c.params.top_k > 0) ids.resize(std::min(ids.size(), static_cast<size_t>(c.params.top_k)));
  const float max = l[ids[0]], least = c.params.min_p > 0
                                           ? max + c.params.temperature * std::log(c.params.min_p)
                                           : kNever;
  const auto weight = [&](size_t id) {
    return std::exp((double{l[id]} - max) / c.params.temperature);
  };
  double total = 0, sum = 0;
  for (const size_t id : ids) total += weight(id);
  const double random = Random01(c.params.seed, c.prompt.size() + c.output.size());
  for (size_t kept = 1; kept <= ids.size(); ++kept) {
    sum += weight(ids[kept - 1]);
    if (c.params.top_p < 1 ? sum < (c.params.top_p - kBound) * total : kept < ids.size()) continue;
    std::vector<size_t> drawn(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept));
    std::erase_if(drawn, [&](size_t id) { return l[id] < least; });
    std::sort(drawn.begin(), drawn.end());
    double of_drawn = 0, upto = 0;
    for (const size_t id : drawn) of_drawn += weight(id);
    for (const size_t id : drawn) {
      const double before = upto;
      upto += weight(id);
      if (static_cast<TokenId>(id) == token && before <= (random + kBound) * of_drawn &&
          upto >= (random - kBound) * of_drawn)
        return true;
    }
    if (sum >= (c.params.top_p + kBound) * total) return false;
  }
  return false;
}

class CudaSampling : public CudaTest {
 protected:
  // All in one step, each time with fresh memory; in other orders of threads every fifth. REQUIRES:
  // one vocabulary.
  std::vector<SampledToken> OnTheDevice(const std::vector<Case>& cases) {
    std::vector<SampledToken> all = SampleOnce(cases);
    for (int order = 1; order < kNumOrders; ++order) {
      std::vector<Case> some;
      std::vector<size_t> which;
      for (size_t i = static_cast<size_t>(order); i < cases.size();
           i += cases.size() < 20 ? 1 : 5) {
        some.push_back(cases[i]);
        which.push_back(i);
      }
      if (some.empty()) continue;
      SetOrder(order);
      const std::vector<SampledToken> got = SampleOnce(some);
      for (size_t i = 0; i < some.size(); ++i)
        ExpectSame(got[i], all[which[i]], some[i].name + ", order " + std::to_string(order));
    }
    SetOrder(0);
    return all;
  }

  std::vector<SampledToken> SampleOnce(const std::vector<Case>& cases) {
    const std::unique_ptr<StagedStream> staged = StagedStream::Create(0).value();
    const auto vocab = std::ssize(cases[0].logits);
    const std::unique_ptr<Sampler> sampler =
        Sampler::Create(std::ssize(cases), vocab, *staged, team_).value();
    std::vector<float> logits(2 * cases[0].logits.size(), NAN);  // rows that nobody samples
    std::vector<SampleWork> work;
    for (const Case& c : cases) {
      EXPECT_EQ(std::ssize(c.logits), vocab);
      work.push_back({logits.size() / static_cast<size_t>(vocab), &c.params, c.context()});
      logits.insert(logits.end(), c.logits.begin(), c.logits.end());
    }
    std::reverse(work.begin(), work.end());
    const DeviceBuffer device_logits = Upload(logits);
    std::vector<SampledToken> tokens(work.size());
    sampler->Sample(device_logits.as<float>(), work, tokens);
    std::reverse(tokens.begin(), tokens.end());
    return tokens;
  }

  static void ExpectSame(const SampledToken& a, const SampledToken& b, const std::string& name) {
    EXPECT_EQ(a.token, b.token) << name;
    EXPECT_EQ(a.rank, b.rank) << name;
    EXPECT_EQ(a.logprob, b.logprob) << name;
    ASSERT_EQ(a.top.size(), b.top.size()) << name;
    for (size_t i = 0; i < a.top.size(); ++i) {
      EXPECT_EQ(a.top[i].token, b.top[i].token) << name << ", " << i;
      EXPECT_EQ(a.top[i].logprob, b.top[i].logprob) << name << ", " << i;
    }
  }

  static void ExpectNear(float a, float b, const std::string& name) {
    if (a == b) return;  // infinities too
    EXPECT_NEAR(a, b, 1e-6 * (1 + std::abs(b))) << name;
  }

  // Against lamina::Sample, and where that differs against exact arithmetic.
  void Check(const std::vector<Case>& cases) {
    const std::vector<SampledToken> got = OnTheDevice(cases);
    size_t num_different = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::string& name = cases[i].name;
      const SampledToken expected = OnTheHost(cases[i]);
      if (expected.token < 0) {
        EXPECT_EQ(got[i].token, -1) << name;
        continue;
      }
      EXPECT_TRUE(MayBeDrawn(cases[i], got[i].token))
          << name << ": " << got[i].token << ", on the host " << expected.token;
      EXPECT_TRUE(MayBeDrawn(cases[i], expected.token)) << name << ": the host's";
      ASSERT_EQ(got[i].top.size(), expected.top.size()) << name;
      for (size_t k = 0; k < expected.top.size(); ++k) {
        EXPECT_EQ(got[i].top[k].token, expected.top[k].token) << name << ", " << k;
        ExpectNear(got[i].top[k].logprob, expected.top[k].logprob, name);
      }
      if (got[i].token != expected.token) {
        ++num_different;
        continue;
      }
      EXPECT_EQ(got[i].rank, expected.rank) << name;
      ExpectNear(got[i].logprob, expected.logprob, name);
    }
    EXPECT_LE(num_different, cases.size() / 500);
  }

  WorkerTeam team_{2};
};

std::vector<std::pair<std::string, SamplingParams>> AllParams(int64_t vocab) {
  std::vector<std::pair<std::string, SamplingParams>> all;
  const auto add = [&](const char* name) -> SamplingParams& {
    return all.emplace_back(name, SamplingParams{}).second;
  };
  const auto token = [&](int64_t id) { return static_cast<TokenId>(id % vocab); };
  add("greedy").temperature = 0;
  add("plain");
  add("cold").temperature = 0.2f;
  add("hot").temperature = 3;
  add("coldest").temperature = kLeastTemperature;
  add("colder than that").temperature = 1e-6f;
  add("denormal").temperature = 1e-45f;
  add("with an inverse that overflows").temperature = 2.9e-39f;
  add("hottest").temperature = kMaxTemperature;
  add("top_k 1").top_k = 1;
  add("top_k 7").top_k = 7;
  add("top_k 40").top_k = 40;
  add("top_k beyond the vocabulary").top_k = static_cast<int32_t>(vocab) + 3;
  add("top_k of most").top_k = std::max(1, static_cast<int32_t>(vocab * 9 / 10));
  add("top_p").top_p = 0.9f;
  add("top_p of nearly all").top_p = 0.99999f;
  add("tiny top_p").top_p = 1e-6f;
  add("min_p").min_p = 0.1f;
  add("min_p 1").min_p = 1;
  add("logprob").num_logprobs = 0;
  add("five logprobs").num_logprobs = 5;
  add("twenty logprobs").num_logprobs = 20;
  add("logprobs for the host").num_logprobs = 21;
  add("biases").logit_bias = {{token(3), 4.0f},    {token(1), -2.5f}, {token(3), 0.1f},
                              {token(9), -100.0f}, {-1, 5.0f},        {1 << 25, 5.0f}};
  add("biases for the host").logit_bias = {{token(2), kNever}};
  SamplingParams bans;
  bans.min_tokens = 100;
  for (int64_t id = 0; id < vocab; id += 2) bans.banned.push_back(static_cast<TokenId>(id));
  add("banned") = bans;
  for (int64_t id = 1; id < vocab; id += 2) bans.banned.push_back(static_cast<TokenId>(id));
  add("all banned") = bans;
  bans.min_tokens = 2;
  add("no longer banned") = bans;
  add("repetition_penalty").repetition_penalty = 1.7f;
  add("frequency_penalty").frequency_penalty = 0.37f;
  add("presence_penalty").presence_penalty = -0.61f;
  SamplingParams everything;
  everything.temperature = 0.8f;
  everything.top_k = 50;
  everything.top_p = 0.95f;
  everything.min_p = 0.02f;
  everything.repetition_penalty = 1.1f;
  everything.frequency_penalty = 0.13f;
  everything.presence_penalty = 0.29f;
  everything.num_logprobs = 20;
  everything.logit_bias = {{token(5), 2.0f}, {token(4), 3.1f}, {token(7), -1.3f}, {token(4), 0.7f}};
  everything.banned = {token(4), token(1)};
  everything.min_tokens = 100;
  add("everything") = everything;
  everything.temperature = 0;
  add("everything greedy") = everything;
  return all;
}

// Rows of different kinds, by name.
std::vector<std::pair<std::string, std::vector<float>>> AllRows(size_t vocab, uint32_t seed) {
  std::vector<float> wide = RandomFloats(vocab, seed, 12),
                     narrow = RandomFloats(vocab, seed + 1, 0.5f), ties = wide, masked = wide;
  for (float& logit : ties) logit = std::round(logit / 6);  // -0 among them
  for (size_t i = 0; i < vocab; ++i) {
    if (i % 3 != seed % 3 && i != vocab / 2) masked[i] = kNever;
  }
  return {{"wide", wide},
          {"narrow", narrow},
          {"ties", ties},
          {"equal", std::vector<float>(vocab, -3.25f)},
          {"masked", masked}};
}

std::vector<Case> AllCases(size_t vocab, uint64_t seed) {
  std::vector<Case> cases;
  const std::vector<float> ids = RandomFloats(24, static_cast<uint32_t>(seed) + 99, 1);
  for (const auto& [row_name, logits] : AllRows(vocab, static_cast<uint32_t>(seed))) {
    for (const auto& [name, params] : AllParams(static_cast<int64_t>(vocab))) {
      Case& c = cases.emplace_back(Case{
          row_name + ", " + name + ", vocab " + std::to_string(vocab), logits, params, {}, {}});
      c.params.seed = seed * 1000 + cases.size();
      for (size_t i = 0; i < ids.size(); ++i) {
        (i % 3 == 0 ? c.output : c.prompt)
            .push_back(static_cast<TokenId>(std::abs(ids[i]) *
                                            static_cast<float>(std::min<size_t>(vocab, 40))));
      }
      c.output.push_back(static_cast<TokenId>(vocab));
      c.prompt.push_back(-1);
    }
  }
  return cases;
}

TEST_F(CudaSampling, EveryParameterIsThatOfTheHost) {
  for (const size_t vocab : {1, 2, 5, 1000}) Check(AllCases(vocab, vocab));
}

TEST_F(CudaSampling, DrawsFallWhereTheHostsDo) {
  std::vector<Case> cases;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    for (Case& c : AllCases(150, seed)) cases.push_back(std::move(c));
  }
  Check(cases);
}

TEST_F(CudaSampling, AVocabularyOfManyThousandsWorks) {
  std::vector<Case> cases;
  for (Case& c : AllCases(32003, 7)) {
    const bool is_chosen =
        c.name.starts_with("narrow, plain") || c.name.starts_with("wide, top_k 40") ||
        c.name.starts_with("ties, top_k 40") || c.name.starts_with("narrow, top_p,") ||
        c.name.starts_with("equal, top_p,") || c.name.starts_with("masked, everything") ||
        c.name.starts_with("wide, everything,") || c.name.starts_with("narrow, top_k of most");
    if (is_chosen) cases.push_back(std::move(c));
  }
  ASSERT_EQ(cases.size(), 9u);
  Check(cases);
}

// Draws just below and just above borders, which random ones rarely meet.
TEST_F(CudaSampling, BordersLieWhereExactArithmeticHasThem) {
  std::vector<float> logits = RandomFloats(2000, 3, 0.5f);
  // So that top-p keeps the first tokens.
  std::sort(logits.begin(), logits.end(), std::greater<>());
  std::vector<double> share;  // of each token and those before it
  double total = 0;
  for (const float logit : logits) share.push_back(total += std::exp(double{logit} - logits[0]));
  for (double& x : share) x /= total;
  std::vector<SampleRow> rows;
  std::vector<TokenId> expected;
  for (const size_t last : {0, 1, 500, 999, 1500, 1998}) {
    for (const bool above : {false, true}) {
      SampleRow drawn;
      drawn.inverse_temperature = 1;
      drawn.random = share[last] + (above ? kBound : -kBound);
      SampleRow filtered = drawn;
      filtered.top_p = static_cast<float>(drawn.random);
      filtered.random = 1 - 0x1p-53;  // the last that is kept
      for (const SampleRow& row : {drawn, filtered}) {
        rows.push_back(row);
        rows.back().row = std::ssize(rows) - 1;
        expected.push_back(static_cast<TokenId>(above ? last + 1 : last));
      }
    }
  }
  std::vector<float> all;
  for (size_t i = 0; i < rows.size(); ++i) all.insert(all.end(), logits.begin(), logits.end());
  const DeviceBuffer device_logits = Upload(all), device_rows = Upload(rows);
  const auto outputs = OutputOf<SampleOutput>(rows.size(), [&](SampleOutput* out) {
    SampleTokens(device_logits.as<float>(), std::ssize(logits), device_rows.as<SampleRow>(),
                 std::ssize(rows), nullptr, out, stream());
  });
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(outputs[i].token, expected[i]) << i;
}

TEST_F(CudaSampling, TiesGoToTheLowestId) {
  std::vector<float> row(3000, -1.0f), zeros = row;
  for (const size_t i : {700, 1111, 1112, 2999}) row[i] = 50;
  zeros[40] = -0.0f;
  zeros[41] = 0.0f;
  std::vector<Case> cases;
  for (const auto& logits : {row, zeros, std::vector<float>(3000, -7.0f)}) {
    Case& greedy = cases.emplace_back(Case{"greedy", logits, {}, {}, {}});
    greedy.params.temperature = 0;
    greedy.params.num_logprobs = 3;
  }
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Case& two = cases.emplace_back(Case{"the first two", row, {}, {}, {}});
    two.params.top_k = 2;
    two.params.seed = seed;
  }
  const std::vector<SampledToken> got = OnTheDevice(cases);
  EXPECT_EQ(got[0].token, 700);
  EXPECT_EQ(got[0].top[2].token, 1112);
  EXPECT_EQ(got[1].token, 40);
  EXPECT_EQ(got[1].top[1].token, 41);
  EXPECT_EQ(got[2].token, 0);
  std::set<TokenId> drawn;
  for (size_t i = 3; i < got.size(); ++i) drawn.insert(got[i].token);
  EXPECT_EQ(drawn, (std::set<TokenId>{700, 1111}));
}

TEST_F(CudaSampling, WhatCannotBeSampledIsMinusOne) {
  const std::vector<float> good = RandomFloats(600, 1);
  std::vector<float> with_nan = good, with_infinity = good, one_finite(600, kNever);
  with_nan[599] = -NAN;
  with_infinity[3] = INFINITY;
  one_finite[599] = -1e30f;
  std::vector<Case> cases;
  for (const float temperature : {0.0f, 1.0f}) {
    for (const auto& logits :
         {with_nan, with_infinity, std::vector<float>(600, kNever), one_finite}) {
      Case& c = cases.emplace_back(Case{"", logits, {}, {}, {}});
      c.params.temperature = temperature;
      c.params.num_logprobs = 1;
      c.params.logit_bias = {{7, 1.0f}};
    }
  }
  const std::vector<SampledToken> got = OnTheDevice(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(got[i].token, i % 4 == 3 ? 599 : -1) << i;
    EXPECT_EQ(got[i].token, OnTheHost(cases[i]).token) << i;
    EXPECT_EQ(got[i].top.size(), i % 4 == 3 ? 1u : 0u) << i;
  }
}

TEST_F(CudaSampling, ARowDoesNotDependOnTheOthers) {
  std::vector<Case> cases = AllCases(333, 5);
  const std::vector<SampledToken> together = SampleOnce(cases);
  for (size_t i = 0; i < cases.size(); i += 7)
    ExpectSame(SampleOnce({cases[i]})[0], together[i], cases[i].name);
}

// More than there are places for: the last row goes the host's way.
TEST_F(CudaSampling, PenaltiesOfMoreTokensThanThereIsRoomForAreTheHosts) {
  std::vector<Case> cases;
  const std::vector<float> logits = RandomFloats(300000, 1, 10);
  for (int i = 0; i < 4; ++i) {
    Case& c = cases.emplace_back(Case{"row " + std::to_string(i), logits, {}, {}, {}});
    c.params.seed = static_cast<uint64_t>(i);
    c.params.frequency_penalty = 0.5f;
    c.output.resize(logits.size());
    std::iota(c.output.begin(), c.output.end(), 0);
  }
  const std::vector<SampledToken> got = SampleOnce(cases);
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(got[i].token, OnTheHost(cases[i]).token) << i;
}

// Of more rows than are on the host at a time.
TEST_F(CudaSampling, TokensOfPromptsAreScoredAsOnTheHost) {
  constexpr size_t kVocab = 300000, kRows = 30;
  const std::vector<float> logits = RandomFloats(kVocab * kRows, 1, 10);
  const std::unique_ptr<StagedStream> staged = StagedStream::Create(0).value();
  const std::unique_ptr<Sampler> sampler = Sampler::Create(kRows, kVocab, *staged, team_).value();
  std::vector<ScoreWork> work;
  for (size_t row = 0; row < kRows; ++row) {
    if (row != 3) work.push_back({row, static_cast<TokenId>(row * 9999), 2});
  }
  const DeviceBuffer device_logits = Upload(logits);
  std::vector<TokenScore> scores(work.size());
  sampler->Score(device_logits.as<float>(), work, scores);
  for (size_t i = 0; i < work.size(); ++i) {
    const auto row = std::span(logits).subspan(work[i].row * kVocab, kVocab);
    const TokenScore expected = Score(row, work[i].token, 2);
    EXPECT_EQ(scores[i].token, work[i].token);
    EXPECT_EQ(scores[i].logprob, expected.logprob);
    EXPECT_EQ(scores[i].rank, expected.rank);
    ASSERT_EQ(scores[i].top.size(), 2u);
    EXPECT_EQ(scores[i].top[1].token, expected.top[1].token);
    EXPECT_EQ(scores[i].top[1].logprob, expected.top[1].logprob);
  }
}

}  // namespace cuda_sampling_test
}  // namespace lamina::cuda
#endif
