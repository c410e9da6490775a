// When a memory node computes and when it could but has nothing to do. wire/step_times.h says what
// is meant by each.
#pragma once

#include <cstdint>
#include <utility>

#include "base/clock_offset.h"
#include "wire/step_times.h"

namespace lamina {

// Value type. Thread: one owner.
class ServiceTimes {
 public:
  // A step that decodes here was ordered; its last output is complete, or it was given up.
  // REQUIRES: EndStep as often as BeginStep at most.
  void BeginStep() {
    if (num_under_way_++ == 0 && !busy_) idle_since_ns_ = NowNs();
  }
  void EndStep() {
    if (--num_under_way_ == 0) idle_since_ns_ = 0;
  }

  // Poll has shown the message that is handled next at `at_ns`.
  void Noticed(int64_t at_ns) { noticed_ns_ = at_ns; }

  // Around each message's work.
  void BeginWork() {
    started_ns_ = NowNs();
    if (idle_since_ns_ != 0) bubble_ns_ += started_ns_ - idle_since_ns_;
    idle_since_ns_ = 0;
    busy_ = true;
  }
  int64_t EndWork() {  // returns how long it took
    const int64_t now = NowNs();
    busy_ = false;
    if (num_under_way_ > 0) idle_since_ns_ = now;
    return now - started_ns_;
  }

  // For the reply to the message whose output is complete now, and whose first part took
  // `before_ns`: both are told as one piece. The bubble starts at none again.
  ReplyTimes Take(int64_t before_ns = 0) {
    const int64_t started = started_ns_ - before_ns;
    const int64_t noticed = noticed_ns_ != 0 && noticed_ns_ < started ? noticed_ns_ : started;
    return {ClockId(), noticed, started, NowNs(), std::exchange(bubble_ns_, 0)};
  }

 private:
  int num_under_way_ = 0;
  bool busy_ = false;
  int64_t idle_since_ns_ = 0;  // 0: not idle, or no step is under way
  int64_t noticed_ns_ = 0, started_ns_ = 0;
  int64_t bubble_ns_ = 0;
};

}  // namespace lamina
