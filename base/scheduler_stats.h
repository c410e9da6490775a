// How much a scheduler has to do, in numbers that the scheduler, the messages and the manager
// share.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace lamina {

struct NodeUse {
  NodeId id;
  int64_t capacity_tokens = 0;
  int64_t used_tokens = 0;    // slots that sequences own
  int64_t cached_tokens = 0;  // slots no sequence owns, kept for sequences that begin alike
  int num_sequences = 0;
};

struct SchedulerStats {
  int num_running = 0;  // sequences with slots
  int num_waiting = 0;
  int num_parked = 0;              // no node that is there could hold them
  int num_suspended = 0;           // of num_running: those that sit out while a node is late
  int64_t num_preemptions = 0;     // since the scheduler was created
  int64_t num_started_tokens = 0;  // tokens of sequences at their start, over all starts
  int64_t num_shared_tokens = 0;   // the part of num_started_tokens that was found in the cache
  // Tokens of sequences that went on with K and V which another scheduler had left; no part of the
  // two above.
  int64_t num_left_tokens = 0;
  std::vector<NodeUse> nodes;  // in the order of their ids
};

}  // namespace lamina
