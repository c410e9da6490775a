#include "manager/expansion_choice.h"

#include <algorithm>

#include "base/log.h"

namespace lamina {
namespace {

// Between two decisions about a cache. After one that changes something as many do not count: a
// ring that was late comes into time again slowly.
constexpr int kSteps = 16;
// Decisions whose steps count.
constexpr size_t kMostShortSteps = 4;
// Of the time of steps, that they may wait for layers.
constexpr double kMostWaited = 0.02, kLittleWaited = 0.005;
constexpr double kMoreSlack = 1.05, kLessSlack = 0.995;
constexpr int kMostHold = 256;
constexpr std::chrono::nanoseconds kLongestCopy = std::chrono::seconds(100);
constexpr std::chrono::nanoseconds kMostWaitedInAll = std::chrono::hours(100000);

// Whether requests wait that there is no room for.
bool IsShort(const SchedulerStats& stats, NodeId node) {
  if (stats.num_waiting == 0) return false;
  const auto use = std::ranges::find(stats.nodes, node, &NodeUse::id);
  // Others may wait because as many run as may, or because prompts are computed in turn.
  return use != stats.nodes.end() && 10 * use->used_tokens >= 8 * use->capacity_tokens;
}

}  // namespace

int FewestThatFit(const ElasticKv& kv, int inside, Clock::duration copy, Clock::duration step) {
  if (step <= Clock::duration::zero()) return kv.num_layers;
  for (int fewer = kv.least_inside; fewer < kv.num_layers; ++fewer) {
    // A layer is as large as the memory is shared by few. A copy begins when a layer is entered, so
    // that it takes as long as a whole number of them.
    const Clock::duration each = copy * inside / fewer;
    const auto layers = (each * kv.num_layers + step - Clock::duration(1)) / step;
    if (layers < kv.num_layers && layers * (kv.num_layers - fewer + 2) < kv.num_layers)
      return fewer;
  }
  return kv.num_layers;
}

void ExpansionChoice::Begin(NodeId node, const ElasticKv& kv, int inside, Scheduler& scheduler) {
  Cache& cache = caches_[node] = {};
  cache.kv = kv;
  cache.state.num_layers = cache.ordered = cache.wanted = inside;
  scheduler.SetCapacity(node, kv.Tokens(inside));
}

void ExpansionChoice::TakeState(NodeId node, const LayersInside& state) {
  const auto found = caches_.find(node);
  if (found == caches_.end()) return;
  LayersInside& taken = found->second.state = state;
  // Whatever the node says, sums of it have to be numbers.
  taken.waited = std::clamp<std::chrono::nanoseconds>(taken.waited, {}, kMostWaitedInAll);
  taken.copy = std::clamp<std::chrono::nanoseconds>(taken.copy, {}, kLongestCopy);
}

std::map<NodeId, int> ExpansionChoice::ordered() const {
  std::map<NodeId, int> ordered;
  for (const auto& [node, cache] : caches_) ordered.emplace(node, cache.ordered);
  return ordered;
}

void ExpansionChoice::TakeStep(Clock::duration step, Scheduler& scheduler) {
  for (auto& [node, cache] : caches_) {
    const Clock::duration waited = cache.state.waited - cache.waited_before;
    cache.waited_before = cache.state.waited;
    if (cache.ordered != cache.wanted) {
      if (scheduler.IsOverCapacity(node)) continue;
      cache.ordered = cache.wanted;
    }
    if (cache.state.num_layers != cache.ordered) continue;
    scheduler.SetCapacity(node, cache.kv.Tokens(cache.ordered));
    if (++cache.num_steps <= 0) continue;
    cache.steps.push_back(step - std::min(waited, step));
    cache.total += step;
    cache.waited += waited;
    if (cache.num_steps == kSteps) Decide(node, cache, scheduler);
  }
}

void ExpansionChoice::Decide(NodeId node, Cache& cache, Scheduler& scheduler) {
  const int inside = cache.ordered;
  // Steps that compute prompts take longer, and leave time for more copies than the others.
  std::ranges::nth_element(cache.steps, cache.steps.begin() + kSteps / 4);
  cache.short_steps.push_back(cache.steps[kSteps / 4]);
  if (cache.short_steps.size() > kMostShortSteps) cache.short_steps.pop_front();
  const Clock::duration step = *std::ranges::min_element(cache.short_steps);
  const double waited =
      std::chrono::duration<double>(cache.waited) / std::chrono::duration<double>(cache.total);
  const auto fewest = [&] {
    // Nothing has come or gone yet: one layer in eight shows how long that takes.
    if (cache.state.copy.count() == 0)
      return std::max(cache.kv.least_inside, inside - std::max(1, cache.kv.num_layers / 8));
    const auto copy = std::chrono::duration_cast<Clock::duration>(cache.state.copy * cache.slack);
    return FewestThatFit(cache.kv, inside, copy, step);
  };
  int next = inside;
  if (waited > kMostWaited && inside < cache.kv.num_layers) {
    if (fewest() <= inside) cache.slack *= kMoreSlack;
    next = std::max(fewest(), inside + 1);
    cache.hold = cache.next_hold;
    cache.next_hold = std::min(2 * cache.next_hold, kMostHold);
  } else if (cache.hold > 0) {
    --cache.hold;
  } else if (fewest() < inside && IsShort(scheduler.stats(), node)) {
    next = fewest();
  } else if (waited < kLittleWaited) {
    cache.slack = std::max(1.0, cache.slack * kLessSlack);
    cache.next_hold = std::max(1, cache.next_hold / 2);
  }
  cache.steps.clear();
  cache.num_steps = next == inside ? 0 : -kSteps;
  cache.total = cache.waited = {};
  if (next == inside) return;
  LAMINA_LOG_DEBUG("{} of {} layers of node {}'s KV inside instead of {}, steps waited {:.1f} %",
                   next, cache.kv.num_layers, node.value, inside, 100 * waited);
  cache.wanted = next;
  // Room for more tokens comes when fewer layers are inside; what there is no room for goes first.
  if (next > inside) scheduler.SetCapacity(node, cache.kv.Tokens(next));
}

}  // namespace lamina
