// Virtual time: what happens when. Events of the same time come in the order in which they were put
// in, so that a run is a function of its input.
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

// Something that happens, to whom `index` says.
struct VirtualEvent {
  enum class Kind : uint8_t {
    kArrival,  // the next request
    // The change `index` of the simulation's list happens to a node.
    kChange,
    // The compute nodes that are left can go on.
    kReconnected,
    // A step of batch `index` is complete: its result is at the manager.
    kResult,
    // A step of batch `index` begins: its order is at the compute nodes.
    kOrder,
    // Compute node `index` may have something to do.
    kAdvance,
    // q of batch `index` is complete and goes to the memory nodes (overlap).
    kQueries,
    // The rest of the slice of batch `index` is complete, and goes to the memory nodes.
    kRows,
  };
  TimePoint at;
  Kind kind = Kind::kArrival;
  int index = 0;
  // Of the compute nodes' events: grows whenever a compute node is lost. What was under way then
  // never happens, and is known by its older generation.
  uint64_t generation = 0;
};

// Thread: owner.
class EventQueue {
 public:
  void Push(TimePoint at, VirtualEvent::Kind kind, int index, uint64_t generation = 0) {
    events_.push({{at, kind, index, generation}, next_number_++});
  }
  bool empty() const { return events_.empty(); }
  // When the next event is; kNever if there is none.
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
    // std::priority_queue has the greatest on top, which here is the earliest.
    bool operator<(const Entry& other) const {
      return event.at != other.event.at ? event.at > other.event.at : number > other.number;
    }
  };
  std::priority_queue<Entry> events_;
  uint64_t next_number_ = 0;
};

}  // namespace lamina
