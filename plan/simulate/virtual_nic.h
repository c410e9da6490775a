// A node's NIC in virtual time, by the rules of transport/modelled/modelled_fabric.h: it sends one
// message after another, and takes in one message at a time, each in the first gap that is long
// enough.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/clock.h"
#include "base/device_timeline.h"

namespace lamina {

// The network between any two nodes: a message takes the time of its bytes plus the latency.
struct VirtualLink {
  Clock::duration latency{};
  double bytes_per_s = 0;  // 0: bytes take no time

  Clock::duration CostOf(int64_t bytes) const {
    return bytes_per_s > 0 ? FromSeconds(static_cast<double>(bytes) / bytes_per_s)
                           : Clock::duration::zero();
  }
};

// When a NIC takes in messages, by the rules of the modelled fabric's IngressTimeline, but for
// nodes that thousands of messages reach at the same time: busy pieces that touch become one, so
// that a burst is one piece to look at. Therefore a message without bytes waits for the whole of a
// burst. Value type.
class BurstTimeline {
 public:
  // Takes in a message that arrives at `ready` and needs `cost`. Returns when it has been taken in.
  TimePoint Book(TimePoint ready, Clock::duration cost) {
    constexpr auto kMemory = milliseconds(20);
    const auto ended = [](TimePoint at) {
      return [at](const Busy& busy) { return busy.end < at; };
    };
    // The times of messages that contend differ by less than that, so older pieces are in nobody's
    // way.
    if (!busy_.empty() && busy_.front().end < ready - kMemory)
      busy_.erase(busy_.begin(),
                  std::partition_point(busy_.begin(), busy_.end(), ended(ready - kMemory)));
    TimePoint begin = ready;
    auto next = std::partition_point(busy_.begin(), busy_.end(), ended(ready));
    // Skips busy pieces until the gap before the next one is long enough.
    for (; next != busy_.end() && next->begin < begin + cost; ++next)
      begin = std::max(begin, next->end);
    const TimePoint end = begin + cost;
    if (end > begin) Insert(next, begin, end);
    return end;
  }

 private:
  struct Busy {
    TimePoint begin, end;
  };

  void Insert(std::vector<Busy>::iterator next, TimePoint begin, TimePoint end) {
    const bool follows = next != busy_.begin() && std::prev(next)->end == begin;
    const bool precedes = next != busy_.end() && next->begin == end;
    if (follows && precedes) {
      std::prev(next)->end = next->end;
      busy_.erase(next);
    } else if (follows) {
      std::prev(next)->end = end;
    } else if (precedes) {
      next->begin = begin;
    } else {
      busy_.insert(next, {begin, end});
    }
  }

  // Disjoint and ascending.
  std::vector<Busy> busy_;
};

// Both directions of a NIC. Value type.
struct VirtualNic {
  DeviceTimeline egress;
  BurstTimeline ingress;
};

// When a message of `bytes` that is posted at `now` is seen at the other end.
inline TimePoint Carry(const VirtualLink& link, VirtualNic& from, VirtualNic& to, TimePoint now,
                       int64_t bytes) {
  // Bytes take no time, so no NIC is ever busy.
  if (link.bytes_per_s <= 0) return now + link.latency;
  const Clock::duration cost = link.CostOf(bytes);
  // The receiver takes in the first byte while the last ones are still being sent.
  const TimePoint departure = from.egress.Book(now, cost) - cost;
  return to.ingress.Book(departure + link.latency, cost);
}

}  // namespace lamina
