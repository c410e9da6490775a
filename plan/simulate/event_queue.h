// Virtual time: what happens when. Events of the same time come in the order in which they were put
// in, so a run is a function of its input.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "base/clock.h"

namespace lamina {

// Virtual time begins at TimePoint{}.
inline double SecondsOf(TimePoint at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}
inline double SecondsOf(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}
inline constexpr TimePoint kNever = TimePoint::max();

struct VirtualEvent {
  enum class Kind : uint8_t {
    kArrival,      // of the next request
    kChange,       // of a node: `index` of the list of changes
    kReconnected,  // the compute nodes that are left
    kResult,       // of a step of batch `index`, at the manager
    kOrder,        // of a step of batch `index`, at the compute nodes
    kAdvance,      // compute node `index` may have something to do
    kQueries,      // q of batch `index` is complete and goes to the memory nodes
    kRows,         // the same with the rest of the slice
  };
  TimePoint at;
  Kind kind = Kind::kArrival;
  int index = 0;
  // Of the compute nodes: what was under way when one was lost never happens.
  uint64_t generation = 0;
};

class EventQueue {
 public:
  void Push(TimePoint at, VirtualEvent::Kind kind, int index, uint64_t generation = 0) {
    events_.push({{at, kind, index, generation}, next_number_++});
  }
  bool empty() const { return events_.empty(); }
  TimePoint next() const { return events_.empty() ? kNever : events_.top().event.at; }

  // REQUIRES: not empty.
  VirtualEvent Pop() {
    const VirtualEvent event = events_.top().event;
    events_.pop();
    return event;
  }

 private:
  struct Entry {
    VirtualEvent event;
    uint64_t number = 0;
    bool operator<(const Entry& other) const {  // the top of the queue is the greatest
      return event.at != other.event.at ? event.at > other.event.at : number > other.number;
    }
  };
  std::priority_queue<Entry> events_;
  uint64_t next_number_ = 0;
};

}  // namespace lamina
