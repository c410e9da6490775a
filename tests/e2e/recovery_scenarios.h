// Requests of every kind in every way in which nodes share the work, for the tests of what becomes
// of them when something happens to a node (recovery_run.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/golden_prompts.h"
#include "tests/support/serving.h"

namespace lamina::testing {

inline constexpr int kStreams = 32;
inline constexpr int64_t kTokens = 100;       // of a stream
inline constexpr int64_t kLongPrompt = 900;   // tokens
inline constexpr size_t kStreamsBesides = 8;  // run while long prompts are prefilled

// What requests are at when something happens to a node.
enum class Moment {
  kDecode,     // all of them
  kPrefill,    // of a long prompt, after some of its chunks
  kLastChunk,  // the last one of a prompt is under way
};

struct Scenario {
  std::string name;
  Deployment deployment;
  std::vector<GenerateRequest> requests;
  int beams = 0;  // not 0: each request is a search with so many
  Moment moment = Moment::kDecode;
  size_t tokens_before = 20;  // of each request, before anything happens
  // Where sequences are spread over nodes, attention is merged from the parts that each node has,
  // so that other parts round to other bits.
  double logprob_tolerance = 0;

  // Whether its requests are decoding, with KV on some node, all of the time.
  bool decodes() const { return moment == Moment::kDecode && beams == 0; }
  bool has_one_compute_node() const { return deployment.num_compute_nodes == 1 && !shares_model(); }
  // Whether every compute node has another part of the model.
  bool shares_model() const {
    return deployment.pipeline_parallel_size * deployment.tensor_parallel_size > 1;
  }
};

inline GenerateRequest Stream(std::vector<TokenId> prompt, int64_t max_new_tokens = kTokens) {
  GenerateRequest request = GreedyRequest(std::move(prompt), max_new_tokens);
  request.ignore_eos = true;
  return request;
}

// A prompt of so many tokens that begins with `first`.
inline std::vector<TokenId> LongPrompt(TokenId first, int64_t num_tokens) {
  std::vector<TokenId> prompt = {1, first};
  while (std::ssize(prompt) < num_tokens)
    prompt.push_back(static_cast<TokenId>(100 + 37 * std::ssize(prompt) % 800));
  return prompt;
}

// 32 different ones at once. What the nodes' caches have of a run before would make starting again
// easier than it is.
inline Scenario Plain(const std::string& name) {
  Scenario scenario;
  scenario.name = name;
  scenario.deployment.prefix_caching = false;
  for (int i = 0; i < kStreams; ++i) scenario.requests.push_back(Stream({1, 100 + i, 300, 301}));
  return scenario;
}

inline Scenario SharedPrefix() {
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
inline Scenario Spread() {
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

inline Scenario FourOfEach() {
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

// As many beams as others have streams. To a step all but a beam's last token is prompt: a lost
// beam prefills what was computed in decode rows, and rounds as they did only without a 16-bit
// wire.
inline Scenario BeamSearches() {
  Scenario scenario = Plain("beams");
  scenario.deployment.prefix_caching = true;
  scenario.deployment.kv_dtype = DType::kF32;
  scenario.beams = 4;
  scenario.requests.resize(kStreams / 4);
  for (GenerateRequest& request : scenario.requests) request.max_new_tokens = 60;
  return scenario;
}

// Chunks of a long prompt are small, so that it takes many steps. It comes while others decode.
inline Scenario InTheMiddleOfAPrompt() {
  Scenario scenario = Plain("mid_prefill");
  scenario.deployment.max_num_batched_tokens = scenario.deployment.max_num_seqs = 16;
  scenario.requests.resize(kStreamsBesides);
  for (const TokenId first : {400, 401})
    scenario.requests.push_back(Stream(LongPrompt(first, kLongPrompt), 20));
  scenario.moment = Moment::kPrefill;
  return scenario;
}

// Each prompt is a single chunk.
inline Scenario InTheLastChunk() {
  Scenario scenario = Plain("last_chunk");
  scenario.requests.clear();
  for (int i = 0; i < 8; ++i) scenario.requests.push_back(Stream(LongPrompt(400 + i, 60), 40));
  scenario.moment = Moment::kLastChunk;
  return scenario;
}

inline std::vector<Scenario> Scenarios() {
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
  all.push_back(BeamSearches());
  add("temperature_1", [](Scenario& of) {
    for (size_t i = 0; i < of.requests.size(); ++i) {
      of.requests[i].sampling.temperature = 1;
      of.requests[i].sampling.seed = 7 + i;
    }
  });
  // What is prefilled again gets the same codes and scales.
  add("8_bits_with_scales", [](Scenario& of) { of.deployment.kv_dtype = DType::kI8Scaled; });
  add("logprobs", [](Scenario& of) {
    for (GenerateRequest& request : of.requests) request.sampling.num_logprobs = 20;
  });
  all.push_back(InTheMiddleOfAPrompt());
  all.push_back(InTheLastChunk());
  return all;
}

// Those that this build has and one machine can use.
inline std::vector<TransportKind> Transports() {
  std::vector<TransportKind> all = {TransportKind::kShm, TransportKind::kTcp};
#if __has_include(<ucp/api/ucp.h>)
  all.push_back(TransportKind::kUcx);
#endif
  return all;
}

}  // namespace lamina::testing
