// Memory nodes that are killed or stop for ever while requests run, in every way in which nodes
// share the work and at every point of a request: none fails, and each gets the tokens and the
// log-probabilities of a run in which nothing happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "tests/support/golden_prompts.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;

constexpr int kStreams = 32;
constexpr int64_t kTokens = 100;       // of a stream
constexpr int64_t kLongPrompt = 900;   // tokens
constexpr size_t kStreamsBesides = 8;  // run while long prompts are prefilled

// What requests are at when their node is lost.
enum class Moment {
  kDecode,
  kPrefill,    // of a long prompt, after some of its chunks
  kLastChunk,  // the last one of a prompt is under way
};

struct Scenario {
  std::string name;
  Deployment deployment;
  std::vector<GenerateRequest> requests;
  Moment moment = Moment::kDecode;
  size_t tokens_before = 20;  // of each request, before the node is lost
  // Where sequences are spread over nodes, attention is merged from the parts that each node has,
  // so that other parts round to other bits.
  double logprob_tolerance = 0;
};

GenerateRequest Stream(std::vector<TokenId> prompt, int64_t max_new_tokens = kTokens) {
  GenerateRequest request = GreedyRequest(std::move(prompt), max_new_tokens);
  request.ignore_eos = true;
  return request;
}

// A prompt of so many tokens that begins with `first`.
std::vector<TokenId> LongPrompt(TokenId first, int64_t num_tokens) {
  std::vector<TokenId> prompt = {1, first};
  while (std::ssize(prompt) < num_tokens)
    prompt.push_back(static_cast<TokenId>(100 + 37 * std::ssize(prompt) % 800));
  return prompt;
}

// 32 different ones at once. What the nodes' caches have of a run before would make starting again
// easier than it is.
Scenario Plain(const std::string& name) {
  Scenario scenario;
  scenario.name = name;
  scenario.deployment.prefix_caching = false;
  for (int i = 0; i < kStreams; ++i) scenario.requests.push_back(Stream({1, 100 + i, 300, 301}));
  return scenario;
}

Scenario SharedPrefix() {
  Scenario scenario = Plain("shared_prefix");
  scenario.deployment.prefix_caching = true;
  for (int i = 0; i < kStreams; ++i) {
    std::vector<TokenId> prompt = LongPrompt(300, 64);
    prompt.push_back(100 + i);
    scenario.requests[static_cast<size_t>(i)].prompt = std::move(prompt);
  }
  return scenario;
}

// Golden prompts, because rounding turns no choice of theirs.
Scenario Spread() {
  Scenario scenario = Plain("spread");
  scenario.deployment.num_memory_nodes = 3;
  scenario.deployment.spread_tokens = 16;
  scenario.deployment.kv_dtype = DType::kF32;
  scenario.requests.clear();
  for (const GoldenPrompt& golden : GoldenPrompts(DType::kF32)) {
    if (std::ssize(golden.continuation_ids) > kTokens / 2)
      scenario.requests.push_back(GreedyRequest(golden.prompt_ids, kTokens - 4));
  }
  scenario.logprob_tolerance = 1e-3;
  return scenario;
}

Scenario FourOfEach() {
  Scenario scenario = Plain("n_4");
  scenario.deployment.prefix_caching = true;  // they share the prompt's slots
  scenario.requests.resize(kStreams / 4);
  for (size_t i = 0; i < scenario.requests.size(); ++i) {
    scenario.requests[i].n = 4;
    scenario.requests[i].sampling.temperature = 1;
    scenario.requests[i].sampling.seed = 11 + i;
  }
  return scenario;
}

// Chunks of a long prompt are small, so that it takes many steps. It comes while others decode.
Scenario InTheMiddleOfAPrompt() {
  Scenario scenario = Plain("mid_prefill");
  scenario.deployment.max_num_batched_tokens = scenario.deployment.max_num_seqs = 16;
  scenario.requests.resize(kStreamsBesides);
  for (const TokenId first : {400, 401})
    scenario.requests.push_back(Stream(LongPrompt(first, kLongPrompt), 20));
  scenario.moment = Moment::kPrefill;
  return scenario;
}

// Each prompt is a single chunk.
Scenario InTheLastChunk() {
  Scenario scenario = Plain("last_chunk");
  scenario.requests.clear();
  for (int i = 0; i < 8; ++i) scenario.requests.push_back(Stream(LongPrompt(400 + i, 60), 40));
  scenario.moment = Moment::kLastChunk;
  return scenario;
}

std::vector<Scenario> Scenarios() {
  std::vector<Scenario> all;
  const auto add = [&](const char* name, auto change) { change(all.emplace_back(Plain(name))); };
  add("plain", [](Scenario& of) {
    for (GenerateRequest& request : of.requests) request.sampling.num_logprobs = -1;
  });
  add("rotational", [](Scenario& of) {
    of.deployment.num_compute_nodes = 2;
    of.deployment.pipeline = PipelineMode::kRotational;
  });
  add("stages", [](Scenario& of) { of.deployment.pipeline_parallel_size = 2; });
  add("ranks", [](Scenario& of) {
    of.deployment.tensor_parallel_size = of.deployment.kv_head_parallel = 2;
    of.deployment.num_memory_nodes = 4;
  });
  all.push_back(Spread());
  all.push_back(SharedPrefix());
  all.push_back(FourOfEach());
  add("temperature_1", [](Scenario& of) {
    for (size_t i = 0; i < of.requests.size(); ++i) {
      of.requests[i].sampling.temperature = 1;
      of.requests[i].sampling.seed = 7 + i;
    }
  });
  add("logprobs", [](Scenario& of) {
    for (GenerateRequest& request : of.requests) request.sampling.num_logprobs = 20;
  });
  all.push_back(InTheMiddleOfAPrompt());
  all.push_back(InTheLastChunk());
  return all;
}

struct Loss {
  Scenario scenario;
  TransportKind transport;
  int signal;
  bool of_last;  // memory node; else of m0

  std::string victim() const {
    return "m" + std::to_string(of_last ? scenario.deployment.num_memory_nodes - 1 : 0);
  }
  std::string Name() const {
    return scenario.name + "_" + std::string(TransportKindName(transport)) + "_" + victim() +
           (signal == SIGKILL ? "_killed" : "_stopped");
  }
};

// Not every combination: each scenario has two, which differ in transport, signal and node, so that
// it meets both of each. Four such couples take turns, so that every combination of the three comes
// up in some scenario.
std::vector<Loss> Losses() {
  std::vector<Loss> all;
  const std::vector<Scenario> scenarios = Scenarios();
  for (size_t i = 0; i < scenarios.size(); ++i) {
    const bool over_tcp = i % 2 == 1, of_last = i / 2 % 2 == 1;
    for (const bool first : {true, false})
      all.push_back({scenarios[i], over_tcp == first ? TransportKind::kTcp : TransportKind::kShm,
                     first ? SIGKILL : SIGSTOP, of_last == first});
  }
  return all;
}

class Recovery : public ::testing::TestWithParam<Loss> {
 protected:
  static const Scenario& scenario() { return GetParam().scenario; }

  static std::unique_ptr<Serving> Serve(bool prefix_caching) {
    Deployment deployment = scenario().deployment;
    deployment.transport = GetParam().transport;
    deployment.prefix_caching = prefix_caching;
    // The end of a process is noticed at once.
    if (GetParam().signal == SIGSTOP) deployment.peer_timeout = seconds(1);
    Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
    EXPECT_TRUE(serving.ok()) << serving.status();
    return serving.ok() ? std::move(*serving) : nullptr;
  }

  static std::vector<Collector> Submit(Engine& engine, std::span<const GenerateRequest> requests) {
    std::vector<Collector> collectors;
    for (const GenerateRequest& request : requests) {
      const Result<RequestId> id =
          engine.Submit(request, collectors.emplace_back(request.n).sink());
      EXPECT_TRUE(id.ok()) << id.status();
    }
    return collectors;
  }

  static NodeStatus Victim(Engine& engine) {
    for (const NodeStatus& node : engine.status().nodes) {
      if (node.name == GetParam().victim()) return node;
    }
    return {};
  }

  static void SendVictim(Serving& serving, int signal) {
    const Status sent = serving.cluster->Kill(GetParam().victim(), signal);
    EXPECT_TRUE(sent.ok()) << sent;
  }

  // Submits the requests and loses the node at the scenario's moment.
  static void LoseTheNode(Serving& serving, std::vector<Collector>& collectors);
  static void LoseInDecode(Serving& serving, std::vector<Collector>& collectors);
  static void LoseInPrefill(Serving& serving, std::vector<Collector>& collectors);
  static void LoseInLastChunk(Serving& serving, std::vector<Collector>& collectors);

  static void ExpectSame(const Generated& got, const Generated& expected);
};

void Recovery::LoseTheNode(Serving& serving, std::vector<Collector>& collectors) {
  switch (scenario().moment) {
    case Moment::kDecode: return LoseInDecode(serving, collectors);
    case Moment::kPrefill: return LoseInPrefill(serving, collectors);
    case Moment::kLastChunk: return LoseInLastChunk(serving, collectors);
  }
}

void Recovery::LoseInDecode(Serving& serving, std::vector<Collector>& collectors) {
  collectors = Submit(*serving.engine, scenario().requests);
  for (const Collector& collector : collectors)
    ASSERT_TRUE(collector.WaitForTokens(scenario().tokens_before, Deadline::After(seconds(60))));
  EXPECT_GT(Victim(*serving.engine).num_sequences, 0);
  SendVictim(serving, GetParam().signal);
}

// One of the two long prompts is on each node; their chunks come one prompt after the other.
void Recovery::LoseInPrefill(Serving& serving, std::vector<Collector>& collectors) {
  Engine& engine = *serving.engine;
  const std::span<const GenerateRequest> requests = scenario().requests;
  collectors = Submit(engine, requests.first(kStreamsBesides));
  for (const Collector& collector : collectors)
    ASSERT_TRUE(collector.WaitForTokens(3, Deadline::After(seconds(60))));
  for (const Collector& collector : Submit(engine, requests.subspan(kStreamsBesides)))
    collectors.push_back(collector);
  ASSERT_TRUE(AwaitTrue([&] { return Victim(engine).used_tokens >= kLongPrompt; },
                        Deadline::After(seconds(60))));
  SendVictim(serving, GetParam().signal);
  EXPECT_TRUE(collectors.back().results()[0].tokens.empty() ||
              collectors[kStreamsBesides].results()[0].tokens.empty())
      << "the whole prompt was prefilled already";
}

// The node stops first, so that no chunk that it has a part in comes to an end.
void Recovery::LoseInLastChunk(Serving& serving, std::vector<Collector>& collectors) {
  SendVictim(serving, SIGSTOP);
  collectors = Submit(*serving.engine, scenario().requests);
  ASSERT_TRUE(AwaitTrue([&] { return Victim(*serving.engine).num_sequences > 0; },
                        Deadline::After(seconds(60))));
  if (GetParam().signal != SIGSTOP) SendVictim(serving, GetParam().signal);
  for (const Collector& collector : collectors)
    EXPECT_FALSE(collector.results()[0].finished) << "nothing was under way any more";
}

void Recovery::ExpectSame(const Generated& got, const Generated& expected) {
  EXPECT_TRUE(got.error.ok()) << got.error;
  EXPECT_EQ(got.reason, expected.reason);
  ASSERT_EQ(got.tokens, expected.tokens);
  const double tolerance = scenario().logprob_tolerance;
  for (size_t i = 0; i < got.tokens.size(); ++i) {
    EXPECT_NEAR(got.logprobs[i], expected.logprobs[i], tolerance) << "token " << i;
    ASSERT_EQ(got.tops[i].size(), expected.tops[i].size());
    for (size_t k = 0; tolerance == 0 && k < got.tops[i].size(); ++k) {
      EXPECT_EQ(got.tops[i][k].token, expected.tops[i][k].token) << "token " << i;
      EXPECT_EQ(got.tops[i][k].logprob, expected.tops[i][k].logprob) << "token " << i;
    }
  }
}

TEST_P(Recovery, EveryRequestGoesOnAsIfNothingHadHappened) {
  std::vector<Collector> expected, collectors;
  std::unique_ptr<Serving> serving = Serve(/*prefix_caching=*/false);
  ASSERT_NE(serving, nullptr);
  expected = Submit(*serving->engine, scenario().requests);
  for (const Collector& collector : expected)
    ASSERT_TRUE(collector.Wait(Deadline::After(seconds(60))));
  if (scenario().deployment.prefix_caching) {
    serving.reset();
    serving = Serve(/*prefix_caching=*/true);
    ASSERT_NE(serving, nullptr);
  }
  Engine& engine = *serving->engine;

  ASSERT_NO_FATAL_FAILURE(LoseTheNode(*serving, collectors));
  for (size_t i = 0; i < collectors.size(); ++i) {
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(seconds(60)))) << "request " << i << " hangs";
    const std::vector<Generated> got = collectors[i].results(), undisturbed = expected[i].results();
    for (size_t j = 0; j < got.size(); ++j) {
      SCOPED_TRACE("continuation " + std::to_string(j) + " of request " + std::to_string(i));
      ExpectSame(got[j], undisturbed[j]);
    }
  }
  EXPECT_EQ(Victim(engine).state, NodeState::kLost);
  const EngineStatus status = engine.status();
  EXPECT_TRUE(status.serving) << status.detail;
  EXPECT_EQ(status.num_rebuilding, 0);
  EXPECT_EQ(status.scheduler.num_shared_tokens > 0, scenario().deployment.prefix_caching);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
}

INSTANTIATE_TEST_SUITE_P(Losses, Recovery, ::testing::ValuesIn(Losses()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace lamina::testing
