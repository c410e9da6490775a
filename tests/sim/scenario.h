// What happens in one simulation: the cluster's shape, the requests and the faults. All of it is
// drawn from a seed, so a seed is a test case; parts can be left out, to see which of them matter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/slo.h"
#include "manager/cluster_settings.h"

namespace lamina::sim {

// Value type; members as in ClusterConfig where they have its names.
struct ClusterShape {
  int num_compute_nodes = 1;  // all of them, stages and ranks too
  int num_memory_nodes = 2;
  int num_standbys = 0;
  PipelineMode pipeline = PipelineMode::kAuto;
  int pipeline_parallel_size = 1;
  int tensor_parallel_size = 1;
  int kv_head_parallel = 1;
  int64_t spread_tokens = 0;
  bool prefix_caching = false;
  bool overlap = false;
  int64_t tokens_per_pool = 128;  // token slots of each memory node, or group of them
  int max_num_seqs = 8;
  int max_num_batched_tokens = 32;
  QueueMode queue = QueueMode::kFifo;

  // Whether log-probabilities are the same bits as those of one process: sums have one order.
  bool exact() const { return spread_tokens == 0 && tensor_parallel_size == 1 && !overlap; }
  bool rotates() const { return pipeline == PipelineMode::kRotational; }
};

// Value type. Times count from when the nodes are connected.
struct PlannedRequest {
  std::string name = {};  // "r0"
  Clock::duration at{};
  std::vector<TokenId> prompt;
  int n = 1;
  int max_new_tokens = 8;
  bool samples = false;  // at temperature 1, else greedy
  uint64_t seed = 0;
  bool ignore_eos = false;
  int priority = 0;
  Slo slo;
  // The client goes away when it has so many tokens, or at this time.
  std::optional<int> abort_after_tokens = std::nullopt;
  std::optional<Clock::duration> abort_at = std::nullopt;

  // Generated tokens count, and those of the prompt do not: also when it starts again.
  float frequency_penalty() const { return samples ? 0.5F : 0.0F; }
};

enum class FaultKind : uint8_t {
  kKill,          // the process ends; its daemon is started again when the fault is over
  kVanish,        // the same, but nobody hears of it: the machine has no power
  kPause,         // the process does not run
  kSlow,          // its turns take `factor` times as long
  kCutData,       // from `node` to `other`, and back unless it is one-way
  kCutControl,    // between `node` and the manager; one-way: from the node
  kIsolate,       // all of the above cuts of a node
  kBreakControl,  // the control connection is reset; it lasts no time
  kKillManager,   // a new one is started when the fault is over
  kBreakFront,    // the connection of the front and the manager is reset; it lasts no time
  kCutFront,      // between them; one-way: from the front
  // The next post from `node` to `other`.
  kCorrupt,
  kDuplicate,  // its notification comes once more, `lasts` later
  kLoseNotification,
  kDelay,  // by `lasts`
};

struct Fault {
  std::string name = {};  // "f0"
  FaultKind kind = FaultKind::kKill;
  // From when the nodes are connected or, if this is not 0, from when they begin to be connected
  // anew for this many times; it does not happen if they are not.
  int on_reconnect = 0;
  Clock::duration at{};
  Clock::duration lasts{};
  std::string node = {};
  std::string other = {};
  bool one_way = false;
  int factor = 1;
};

struct Scenario {
  uint64_t seed = 0;
  ClusterShape shape;
  std::vector<PlannedRequest> requests;
  std::vector<Fault> faults;

  std::vector<std::string> compute_nodes() const;
  std::vector<std::string> memory_nodes() const;
  std::vector<std::string> standbys() const;
};

// Tokens of the longest answer.
inline constexpr int kMostNewTokens = 24;
inline constexpr int kVocabulary = 96;

Scenario DrawScenario(uint64_t seed);

// A request that every cluster can serve once all is well again.
PlannedRequest PlainRequest();

// A line for the cluster, each request and each fault, with the names that DropParts takes.
std::string Describe(const Scenario& scenario);
std::string Describe(const Fault& fault);

// Leaves out requests and faults: "r0,f2" are the first request and the third fault of the seed.
// Returns false if there is no such part.
bool DropParts(Scenario& scenario, const std::string& names);

}  // namespace lamina::sim
