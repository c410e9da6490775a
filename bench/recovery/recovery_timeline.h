// What happened while streams were served and nodes failed: what figures and picture are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "bench/recovery/node_fault.h"

namespace lamina {

inline double SecondsBetween(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

// One request of a stream.
struct StreamRequest {
  TimePoint submitted{};
  std::vector<TokenId> tokens;
  std::vector<TimePoint> times;  // [tokens] when each came
  // With all its tokens or with `error`. nullopt: the run ended first.
  std::optional<TimePoint> ended;
  std::string error;  // why it failed or was refused; "" if neither
};

// A client that asks for one answer after another. Its n-th request is the same in every run.
struct StreamRecord {
  std::vector<StreamRequest> requests;
  // It has all that it was to get. nullopt: the run ended first.
  std::optional<TimePoint> done;
};

// A sequence was given slots: when it was started, and again whenever it had lost them.
struct SequenceStart {
  size_t stream = 0, request = 0;
  TimePoint at{};
  bool again = false;
  int64_t num_tokens = 0;  // that it had: its prompt, and what was generated before
  int64_t num_shared = 0;  // of these, tokens whose KV was there already
  // Which nodes got KV of it until it lost its slots, each once. Of a group the first node.
  struct Place {
    NodeId node;
    TimePoint since{};
  };
  std::vector<Place> places;
};

// A fault that was done.
struct FaultRecord {
  NodeFault fault;
  TimePoint at{};
  NodeId kv_node;  // where the KV is that lies on the node; of a group the first node
  // When the manager's status told of it: that the node is lost, or ready again after kRestart.
  // nullopt: it never did.
  std::optional<TimePoint> known = {};
  // kKill of the manager: tokens whose K and V the next one found on memory nodes.
  int64_t left_tokens = 0;
  // What the nodes that were left needed, when all streams were over, to prefill prompts of the
  // lengths of LengthsAgain. nullopt: there are none, or they could not.
  std::optional<double> prefill_alone_s = {};
};

struct RecoveryTimeline {
  TimePoint start{}, end{};
  int64_t input_tokens = 0;  // of each request's prompt
  std::vector<StreamRecord> streams;
  std::vector<SequenceStart> starts;  // in the order of their times
  std::vector<FaultRecord> faults;    // in the order of their times
  int64_t num_preemptions = 0;
  // In use after all requests were over, by the manager's count or the nodes' own if that is more.
  int64_t slots_at_end = 0;
};

// When the fault behind this one was done. The end of time if there is none. kContinue is none: it
// belongs to its kStop.
TimePoint NextFault(const RecoveryTimeline& run, size_t fault);

// Of each sequence that started again after a fault and before the next one, how many tokens' KV
// had to be computed again; none of 0.
std::vector<int64_t> LengthsAgain(const RecoveryTimeline& run, size_t fault);

}  // namespace lamina
