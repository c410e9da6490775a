// How many layers of a KV cache have a place in memory, where that may change: as few as nobody has
// to wait for, as long as requests wait for room (Pie, section 3.4.2). With fewer layers inside
// each has room for more tokens, so that more sequences run at a time; but more layers have to come
// and go in the time of a step.
//
// The number follows from what steps take and what a layer takes to come or to go, both as lately
// seen. If steps wait although the copies should fit, copies are taken to be slower than that.
// With fewer layers inside steps have more rows and take longer, which leaves time for more copies:
// the number comes down in several changes until it fits.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/layers_inside.h"
#include "scheduler/scheduler.h"
#include "splitter/offload_options.h"

namespace lamina {

// The smallest number of layers inside with which all others come and go in the time of a step, if
// one takes `copy` while `inside` layers are: those outside, and two that are on their way.
int FewestThatFit(const ElasticKv& kv, int inside, Clock::duration copy, Clock::duration step);

// Thread: one owner.
class ExpansionChoice {
 public:
  // There is a KV cache whose layers may come and go, of this node of the scheduler, which gets the
  // capacity that it has while so many are inside. REQUIRES: kv.least_inside <= inside <=
  // kv.num_layers; the scheduler has the node, with what the cache may hold.
  void Begin(NodeId node, const ElasticKv& kv, int inside, Scheduler& scheduler);
  // The node is gone. Ignored if it has none.
  void End(NodeId node) { caches_.erase(node); }

  // What a node says, after each step or now and then.
  void TakeState(NodeId node, const LayersInside& state);
  // A step was completed that took so long. Gives nodes other capacities when that is due.
  void TakeStep(Clock::duration step, Scheduler& scheduler);
  // By node: what is to be inside from the next step on.
  std::map<NodeId, int> ordered() const;

 private:
  struct Cache {
    ElasticKv kv;
    LayersInside state;
    // What is ordered; and what is to be as soon as no slot is used that it leaves no room for.
    int ordered = 0, wanted = 0;
    int num_steps = 0;  // since that is in effect, or since the last decision after it
    // Of those that count.
    std::vector<Clock::duration> steps;  // without the time that they waited
    Clock::duration total{}, waited{};
    std::deque<Clock::duration> short_steps;  // of the last decisions
    std::chrono::nanoseconds waited_before{};
    // Copies are taken to last so many times as long as seen, because steps have waited.
    double slack = 1;
  };
  void Decide(NodeId node, Cache& cache, Scheduler& scheduler);

  std::map<NodeId, Cache> caches_;
};

}  // namespace lamina
