// When a memory node computes and when it could but has nothing to do. splitter/step_times.h says what is meant by each.
#pragma once

#include <cstdint>
#include <utility>

#include "base/clock_offset.h"
#include "splitter/step_times.h"

namespace lamina {

// Value type. Thread: one owner.
class ServiceTimes {
 public:
  // A step that decodes here was ordered; its last output is complete, or it was given up. REQUIRES: EndStep as often as BeginStep at most.
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
  void EndWork() {
    busy_ = false;
    if (num_under_way_ > 0) idle_since_ns_ = NowNs();
  }

  // For the reply to the message whose output is complete now. The bubble starts at none again.
  ReplyTimes Take() {
    const int64_t noticed = noticed_ns_ != 0 && noticed_ns_ < started_ns_ ? noticed_ns_ : started_ns_;
    return {ClockId(), noticed, started_ns_, NowNs(), std::exchange(bubble_ns_, 0)};
  }

 private:
  int num_under_way_ = 0;
  bool busy_ = false;
  int64_t idle_since_ns_ = 0;  // 0: not idle, or no step is under way
  int64_t noticed_ns_ = 0, started_ns_ = 0;
  int64_t bubble_ns_ = 0;
};

}  // namespace lamina
