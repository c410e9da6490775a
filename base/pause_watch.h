// Notices that a loop did not run for a while, because its process was stopped, swapped out or
// starved of its cores. What happened meanwhile is then no fault of those that the loop waits for.
#pragma once

#include <optional>

#include "base/clock.h"

namespace lamina {

// Value type.
class PauseWatch {
 public:
  // A loop that runs lets no more than `turn` pass from one turn to the next.
  explicit PauseWatch(Clock::duration turn) : turn_(turn) {}

  Clock::duration turn() const { return turn_; }

  // At the beginning of each turn. How much time passed in which the loop did not run; 0 if it was
  // less than a turn.
  Clock::duration Turn(TimePoint now) {
    const Clock::duration missed = last_ ? now - *last_ - turn_ : Clock::duration::zero();
    last_ = now;
    return missed < turn_ ? Clock::duration::zero() : missed;
  }

 private:
  Clock::duration turn_;
  std::optional<TimePoint> last_;
};

}  // namespace lamina
