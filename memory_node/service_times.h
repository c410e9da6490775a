// Measures when a memory node works, and when it has a step under way but nothing to do (a bubble).
// wire/step_times.h defines these times.
//
// Use: BeginStep when a step is ordered; Noticed, BeginWork, Take and EndWork for each message;
// EndStep when the step's last output is complete.
#pragma once

#include <cstdint>
#include <utility>

#include "base/clock_offset.h"
#include "wire/step_times.h"

namespace lamina {

// Value type. Thread: one owner.
class ServiceTimes {
 public:
  // To be called when a step that decodes here is ordered, and when its last output is complete or
  // it is given up. REQUIRES: EndStep is called at most once for each BeginStep.
  void BeginStep() {
    if (num_under_way_++ == 0 && !busy_) idle_since_ns_ = NowNs();
  }
  void EndStep() {
    if (--num_under_way_ == 0) idle_since_ns_ = 0;
  }

  // Says when Poll has shown the message that is handled next.
  void Noticed(int64_t at_ns) { noticed_ns_ = at_ns; }

  // To be called before and after the work for each message. EndWork returns how long that took, in
  // nanoseconds.
  void BeginWork() {
    started_ns_ = NowNs();
    if (idle_since_ns_ != 0) bubble_ns_ += started_ns_ - idle_since_ns_;
    idle_since_ns_ = 0;
    busy_ = true;
  }
  int64_t EndWork() {
    const int64_t now = NowNs();
    busy_ = false;
    if (num_under_way_ > 0) idle_since_ns_ = now;
    return now - started_ns_;
  }

  // Returns the times for the reply to the message whose output is complete now, and sets the
  // bubble to zero. A message that came in two parts counts as one piece of work: `before_ns` is
  // how long the first part took.
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
