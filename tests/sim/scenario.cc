#include "tests/sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "tests/sim/random.h"

namespace lamina::sim {
namespace {

using std::chrono::seconds;

// Prompts come from so many texts, so that some begin alike and answers can be kept.
constexpr int kNumTexts = 4;
constexpr std::array kPromptLengths = {4, 9, 16, 20};
constexpr int kNumEndings = 3;
constexpr int kEndingTokens = 3;
constexpr int kNumSeeds = 3;

TokenId TokenOf(uint64_t text, uint64_t position) {
  constexpr int kFirstOrdinary = 3;
  Random random(text * 1000 + position + 1);
  return static_cast<TokenId>(kFirstOrdinary + random.Below(kVocabulary - kFirstOrdinary));
}

std::vector<TokenId> DrawPrompt(Random& random) {
  const uint64_t text = random.Below(kNumTexts), ending = random.Below(kNumEndings);
  const int length = kPromptLengths[random.Below(kPromptLengths.size())];
  std::vector<TokenId> prompt;
  for (int i = 0; i < length; ++i) {
    const bool ends = ending > 0 && i >= length - kEndingTokens;
    prompt.push_back(TokenOf(ends ? kNumTexts + ending : text, static_cast<uint64_t>(i)));
  }
  return prompt;
}

void DrawComputeNodes(Random& random, ClusterShape& shape) {
  const uint64_t kind = random.Below(10);
  if (kind < 4) return;
  shape.num_compute_nodes = 2;
  if (kind == 8) {
    shape.pipeline_parallel_size = 2;
  } else if (kind == 9) {
    shape.tensor_parallel_size = shape.kv_head_parallel = 2;
    shape.num_memory_nodes = 2;
  } else {
    constexpr std::array kModes = {PipelineMode::kFixed, PipelineMode::kRotational,
                                   PipelineMode::kRotational, PipelineMode::kAuto};
    shape.pipeline = kModes[random.Below(kModes.size())];
  }
}

ClusterShape DrawShape(Random& random) {
  ClusterShape shape;
  shape.num_memory_nodes = random.Between(1, 3);
  DrawComputeNodes(random, shape);
  if (shape.num_memory_nodes == 2 && random.Chance(30)) shape.kv_head_parallel = 2;
  if (shape.num_memory_nodes > shape.kv_head_parallel && random.Chance(25)) shape.spread_tokens = 8;
  shape.prefix_caching = random.Chance(75);
  shape.overlap = random.Chance(10);
  shape.tokens_per_pool = random.Chance(25) ? random.Between(52, 64) : random.Between(128, 256);
  shape.max_num_seqs = random.Between(2, 8);
  shape.max_num_batched_tokens = 8 << random.Below(3);
  return shape;
}

PlannedRequest DrawRequest(Random& random) {
  PlannedRequest request;
  const uint64_t when = random.Below(100);
  request.at = random.Between(Clock::duration::zero(), when < 60   ? milliseconds(10)
                                                       : when < 85 ? milliseconds(100)
                                                                   : milliseconds(4000));
  request.prompt = DrawPrompt(random);
  const uint64_t n = random.Below(100);
  request.n = n < 75 ? 1 : n < 95 ? 2 : 4;
  request.max_new_tokens = random.Between(4, kMostNewTokens);
  request.samples = random.Chance(35);
  request.seed = 1 + random.Below(kNumSeeds);
  request.ignore_eos = random.Chance(50);
  if (random.Chance(6)) request.abort_after_tokens = random.Between(0, request.max_new_tokens);
  if (random.Chance(6))
    request.abort_at = request.at + random.Between(microseconds(0), milliseconds(20));
  return request;
}

FaultKind DrawKind(Random& random) {
  struct Weight {
    FaultKind kind;
    uint64_t percent;
  };
  constexpr std::array kWeights = {Weight{FaultKind::kKill, 30},
                                   Weight{FaultKind::kVanish, 6},
                                   Weight{FaultKind::kPause, 15},
                                   Weight{FaultKind::kSlow, 5},
                                   Weight{FaultKind::kCutData, 10},
                                   Weight{FaultKind::kCutControl, 7},
                                   Weight{FaultKind::kIsolate, 7},
                                   Weight{FaultKind::kBreakControl, 4},
                                   Weight{FaultKind::kCorrupt, 5},
                                   Weight{FaultKind::kDuplicate, 4},
                                   Weight{FaultKind::kLoseNotification, 4},
                                   Weight{FaultKind::kDelay, 3}};
  uint64_t left = random.Below(100);
  for (const Weight& weight : kWeights) {
    if (left < weight.percent) return weight.kind;
    left -= weight.percent;
  }
  return FaultKind::kKill;
}

bool IsOfOnePost(FaultKind kind) { return kind >= FaultKind::kCorrupt; }

Clock::duration DrawLength(Random& random, FaultKind kind) {
  switch (kind) {
    case FaultKind::kKill:
    case FaultKind::kKillManager:
    case FaultKind::kVanish:
      return random.Chance(30) ? random.Between(milliseconds(1), milliseconds(50))
                               : random.Between(milliseconds(100), milliseconds(5000));
    case FaultKind::kSlow: return random.Between(milliseconds(5), milliseconds(1000));
    case FaultKind::kDuplicate:
      return random.Chance(30) ? Clock::duration::zero()
                               : random.Between(microseconds(0), milliseconds(2));
    case FaultKind::kDelay: return random.Between(microseconds(100), milliseconds(300));
    case FaultKind::kPause:
    case FaultKind::kCutFront:
    case FaultKind::kCutData:
    case FaultKind::kCutControl:
    case FaultKind::kIsolate:
      return random.Chance(40) ? random.Between(milliseconds(1), milliseconds(150))
                               : random.Between(milliseconds(200), milliseconds(15000));
    default: return {};
  }
}

// Most faults meet a request that has just come, or nodes that are being connected anew. `first`:
// when the first fault begins, which others follow soon or late.
void DrawTime(Random& random, const Scenario& scenario, std::optional<Clock::duration> first,
              Fault& fault) {
  const uint64_t when = random.Below(10);
  if (when < 5) {
    const PlannedRequest& met = scenario.requests[random.Below(scenario.requests.size())];
    fault.at = met.at + random.Between(milliseconds(0), milliseconds(4));
  } else if (first && when < 8) {
    fault.on_reconnect = random.Between(1, 3);
    fault.at = random.Between(milliseconds(0), milliseconds(2));
  } else {
    fault.at = first.value_or(Clock::duration::zero()) +
               random.Between(milliseconds(0), when < 9 ? milliseconds(5) : milliseconds(3000));
  }
}

Fault DrawFault(Random& random, const Scenario& scenario, std::optional<Clock::duration> first) {
  Fault fault;
  fault.kind = DrawKind(random);
  DrawTime(random, scenario, first, fault);
  fault.lasts = DrawLength(random, fault.kind);
  fault.one_way = random.Chance(40);
  fault.factor = fault.kind == FaultKind::kSlow ? random.Between(5, 200) : 1;
  const std::vector<std::string> compute = scenario.compute_nodes();
  const std::vector<std::string> memory = scenario.memory_nodes();
  const bool of_memory = random.Chance(60);
  fault.node =
      of_memory ? memory[random.Below(memory.size())] : compute[random.Below(compute.size())];
  if (fault.kind != FaultKind::kCutData && !IsOfOnePost(fault.kind)) return fault;
  const bool between_compute = !of_memory && compute.size() > 1 && random.Chance(40);
  if (between_compute)
    fault.other = fault.node == "c0" ? "c1" : "c0";
  else
    fault.other =
        of_memory ? compute[random.Below(compute.size())] : memory[random.Below(memory.size())];
  return fault;
}

// A memory node is late while it has a request's KV, from so long after the request came at the
// most: mostly longer than suspect_after and not as long as peer_timeout (cluster_options.cc).
Fault DrawLateNode(Random& random, const Scenario& scenario, const PlannedRequest& met,
                   Clock::duration behind) {
  Fault fault;
  fault.name = "f" + std::to_string(scenario.faults.size());
  fault.kind = random.Chance(50) ? FaultKind::kPause : FaultKind::kCutData;
  fault.at = met.at + random.Between(Clock::duration::zero(), behind);
  fault.lasts = random.Between(milliseconds(30), milliseconds(145));
  const std::vector<std::string> compute = scenario.compute_nodes();
  const std::vector<std::string> memory = scenario.memory_nodes();
  fault.node = memory[random.Below(memory.size())];
  fault.other = compute[random.Below(compute.size())];
  fault.one_way = random.Chance(60);
  return fault;
}

// A compute node is killed while the memory node of the fault `late` may be suspended. Draws of its
// own.
void DrawLossMeanwhile(uint64_t seed, const Fault& late, Scenario& scenario) {
  Random random(seed ^ 0x1055);
  if (!random.Chance(30)) return;
  Fault fault;
  fault.name = "f" + std::to_string(scenario.faults.size());
  fault.kind = FaultKind::kKill;
  fault.at = late.at + random.Between(milliseconds(30), milliseconds(120));
  fault.lasts = DrawLength(random, fault.kind);
  const std::vector<std::string> compute = scenario.compute_nodes();
  fault.node = compute[random.Below(compute.size())];
  scenario.faults.push_back(fault);
}

// The manager is killed while it has requests, now and then twice: the second time while nodes are
// connected, or what was lost is computed again. Draws of its own.
void DrawManagerKill(uint64_t seed, Scenario& scenario) {
  Random random(seed ^ 0x3a4a6e2);
  if (!random.Chance(20)) return;
  Fault fault;
  fault.kind = FaultKind::kKillManager;
  fault.node = "the manager";
  const PlannedRequest& met = scenario.requests[random.Below(scenario.requests.size())];
  fault.at = met.at + random.Between(microseconds(0), microseconds(8000));
  const int times = random.Chance(30) ? 2 : 1;
  for (int i = 0; i < times; ++i) {
    fault.name = "f" + std::to_string(scenario.faults.size());
    fault.lasts = DrawLength(random, fault.kind);
    scenario.faults.push_back(fault);
    fault.at += fault.lasts + random.Between(microseconds(0), microseconds(8000));
  }
}

// The front loses the manager, though nothing is wrong with it. Draws of its own.
void DrawFrontLoss(uint64_t seed, Scenario& scenario) {
  Random random(seed ^ 0xf407);
  if (!random.Chance(10)) return;
  Fault fault;
  fault.name = "f" + std::to_string(scenario.faults.size());
  fault.kind = random.Chance(50) ? FaultKind::kBreakFront : FaultKind::kCutFront;
  fault.node = "the front";
  const PlannedRequest& met = scenario.requests[random.Below(scenario.requests.size())];
  fault.at = met.at + random.Between(microseconds(0), microseconds(8000));
  if (fault.kind == FaultKind::kCutFront) {
    fault.lasts = DrawLength(random, fault.kind);
    fault.one_way = random.Chance(40);
  }
  scenario.faults.push_back(fault);
}

// A message with a request's first K and V is not announced to a memory node. Draws of its own.
void DrawLostPush(uint64_t seed, Scenario& scenario) {
  Random random(seed ^ 0x1057);
  if (!random.Chance(6)) return;
  Fault fault;
  fault.name = "f" + std::to_string(scenario.faults.size());
  fault.kind = FaultKind::kLoseNotification;
  const PlannedRequest& met = scenario.requests[random.Below(scenario.requests.size())];
  fault.at = met.at + random.Between(microseconds(0), microseconds(300));
  const std::vector<std::string> compute = scenario.compute_nodes();
  const std::vector<std::string> memory = scenario.memory_nodes();
  fault.node = compute[random.Below(compute.size())];
  fault.other = memory[random.Below(memory.size())];
  scenario.faults.push_back(fault);
}

// A client goes away while its prompt is computed, which now and then a memory node holds up. Draws
// of its own.
void DrawHastyClient(uint64_t seed, Scenario& scenario) {
  Random random(seed ^ 0x4a57e);
  if (!random.Chance(20)) return;
  PlannedRequest& longest = *std::ranges::max_element(
      scenario.requests, {}, [](const PlannedRequest& request) { return request.prompt.size(); });
  const auto latest = random.Chance(50) ? milliseconds(4) : milliseconds(40);
  longest.abort_at = longest.at + random.Between(microseconds(100), latest);
  if (random.Chance(50))
    scenario.faults.push_back(DrawLateNode(random, scenario, longest, milliseconds(1)));
}

// A compute node stands by, which some of the faults of compute nodes are done to instead.
void DrawStandby(uint64_t seed, Scenario& scenario) {
  Random random(seed ^ 0x57a2db7);
  if (!random.Chance(25)) return;
  scenario.shape.num_standbys = 1;
  for (Fault& fault : scenario.faults) {
    if (fault.node.front() == 'c' && random.Chance(30)) fault.node = scenario.standbys()[0];
  }
}

// Some requests are more urgent than others. Draws of its own.
void DrawUrgency(uint64_t seed, Scenario& scenario) {
  Random random(seed ^ 0x51035);
  if (!random.Chance(30)) return;
  scenario.shape.queue = random.Chance(50) ? QueueMode::kPriority : QueueMode::kDeadline;
  for (PlannedRequest& request : scenario.requests) {
    if (scenario.shape.queue == QueueMode::kPriority) {
      request.priority = random.Between(-1, 1);
    } else if (random.Chance(80)) {
      request.slo.ttft = random.Between(microseconds(100), milliseconds(20));
      request.slo.tpot = random.Between(microseconds(1), milliseconds(1));
    }
  }
}

std::vector<std::string> Names(char letter, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(letter + std::to_string(i));
  return names;
}

double Millis(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

std::vector<std::string> Scenario::compute_nodes() const {
  return Names('c', shape.num_compute_nodes);
}

std::vector<std::string> Scenario::memory_nodes() const {
  return Names('m', shape.num_memory_nodes);
}

std::vector<std::string> Scenario::standbys() const { return Names('s', shape.num_standbys); }

Scenario DrawScenario(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.shape = DrawShape(random);
  const int num_requests = random.Between(2, 6);
  for (int i = 0; i < num_requests; ++i) {
    scenario.requests.push_back(DrawRequest(random));
    scenario.requests.back().name = "r" + std::to_string(i);
  }
  constexpr std::array kNumFaults = {0, 1, 1, 1, 1, 2, 2, 2, 3, 4};
  const int num_faults = kNumFaults[random.Below(kNumFaults.size())];
  std::optional<Clock::duration> first;
  for (int i = 0; i < num_faults; ++i) {
    scenario.faults.push_back(DrawFault(random, scenario, first));
    scenario.faults.back().name = "f" + std::to_string(i);
    first = scenario.faults.front().at;
  }
  if (random.Chance(15)) {
    const PlannedRequest& met = scenario.requests[random.Below(scenario.requests.size())];
    scenario.faults.push_back(DrawLateNode(random, scenario, met, milliseconds(6)));
    DrawLossMeanwhile(seed, Fault(scenario.faults.back()), scenario);
  }
  DrawHastyClient(seed, scenario);
  DrawLostPush(seed, scenario);
  DrawStandby(seed, scenario);
  DrawManagerKill(seed, scenario);
  DrawFrontLoss(seed, scenario);
  DrawUrgency(seed, scenario);
  return scenario;
}

PlannedRequest PlainRequest() {
  PlannedRequest request;
  request.name = "plain";
  for (int i = 0; i < kPromptLengths[1]; ++i)
    request.prompt.push_back(TokenOf(0, static_cast<uint64_t>(i)));
  return request;
}

std::string Describe(const Fault& fault) {
  const std::string to = fault.node + " -> " + fault.other;
  const std::string ways = fault.one_way ? to : fault.node + " <-> " + fault.other;
  const std::string lasts = fmt::format(" for {:.3f} ms", Millis(fault.lasts));
  switch (fault.kind) {
    case FaultKind::kKill:
      return fault.node + " is killed, and started again after" + lasts.substr(4);
    case FaultKind::kKillManager:
      return fault.node + " is killed, and a new one is started after" + lasts.substr(4);
    case FaultKind::kVanish:
      return fault.node + " loses power, and is started again after" + lasts.substr(4);
    case FaultKind::kPause: return fault.node + " does not run" + lasts;
    case FaultKind::kSlow:
      return fmt::format("{} is {} times slower{}", fault.node, fault.factor, lasts);
    case FaultKind::kCutData: return "data path " + ways + " is cut" + lasts;
    case FaultKind::kCutControl:
      return "control channel of " + fault.node + (fault.one_way ? " -> manager" : "") + " is cut" +
             lasts;
    case FaultKind::kIsolate:
      return fault.node + (fault.one_way ? " is heard by nobody" : " is cut off") + lasts;
    case FaultKind::kBreakFront: return fault.node + " and the manager: their connection is reset";
    case FaultKind::kCutFront:
      return fault.node + (fault.one_way ? " does not reach" : " and") + " the manager" +
             (fault.one_way ? "" : " do not reach each other") + lasts;
    case FaultKind::kBreakControl: return "control channel of " + fault.node + " is reset";
    case FaultKind::kCorrupt: return "next post " + to + " has a flipped bit";
    case FaultKind::kDuplicate:
      return "next post " + to + " is announced once more," + lasts.substr(4) + " later";
    case FaultKind::kLoseNotification: return "next post " + to + " is not announced";
    case FaultKind::kDelay: return "next post " + to + " is held up" + lasts;
  }
  return "";
}

namespace {

std::string DescribeUrgency(const PlannedRequest& request) {
  if (request.priority != 0) return fmt::format(", priority {}", request.priority);
  if (!request.slo.any()) return "";
  return fmt::format(", due after {:.3f} ms and {:.3f} ms a token", Millis(request.slo.ttft),
                     Millis(request.slo.tpot));
}

}  // namespace

std::string Describe(const Scenario& scenario) {
  const ClusterShape& shape = scenario.shape;
  std::string text = fmt::format(
      "seed {}: {} compute nodes ({}, {} stages, {} ranks), {} standbys, {} memory nodes ({} with "
      "the heads of a token, {} slots), spread {}, prefix caching {}, overlap {}, {} sequences and "
      "{} tokens a step, queue {}\n",
      scenario.seed, shape.num_compute_nodes, PipelineModeName(shape.pipeline),
      shape.pipeline_parallel_size, shape.tensor_parallel_size, shape.num_standbys,
      shape.num_memory_nodes, shape.kv_head_parallel, shape.tokens_per_pool, shape.spread_tokens,
      shape.prefix_caching, shape.overlap, shape.max_num_seqs, shape.max_num_batched_tokens,
      QueueModeName(shape.queue));
  for (const PlannedRequest& request : scenario.requests) {
    text += fmt::format(
        "  {} at {:.3f} ms: {} tokens, n = {}, {} new ones, {}{}{}{}{}\n", request.name,
        Millis(request.at), request.prompt.size(), request.n, request.max_new_tokens,
        request.samples ? fmt::format("seed {}", request.seed) : "greedy",
        request.ignore_eos ? ", no end of text" : "", DescribeUrgency(request),
        request.abort_after_tokens
            ? fmt::format(", aborts after {} tokens", *request.abort_after_tokens)
            : "",
        request.abort_at ? fmt::format(", aborts at {:.3f} ms", Millis(*request.abort_at)) : "");
  }
  for (const Fault& fault : scenario.faults)
    text += fmt::format("  {} at {:.3f} ms{}: {}\n", fault.name, Millis(fault.at),
                        fault.on_reconnect == 0
                            ? ""
                            : fmt::format(" of the nodes being connected anew for the {}. time",
                                          fault.on_reconnect),
                        Describe(fault));
  return text;
}

bool DropParts(Scenario& scenario, const std::string& names) {
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const auto is_it = [&](const auto& part) { return part.name == name; };
    if (std::erase_if(scenario.requests, is_it) + std::erase_if(scenario.faults, is_it) == 0)
      return false;
  }
  return true;
}

}  // namespace lamina::sim
