// How fast a memory node's attention is, from what it says of itself now and then.
#pragma once

#include <cstdint>
#include <optional>

#include "wire/session_messages.h"

namespace lamina {

// Value type.
class AttentionSpeed {
 public:
  // Tokens read per microsecond; none before the first measurement.
  std::optional<double> value() const { return value_; }

  // Takes the node's counters; true if they gave a measurement. Some microseconds of each message
  // are overhead, so messages that took less than kMeaningfulUs on average say nothing. Old
  // measurements fade by half with each new one.
  bool Update(const MemoryStats& now);

  static constexpr int64_t kMeaningfulUs = 25;

 private:
  MemoryStats before_;
  std::optional<double> value_;
};

// With which steps the nodes are asked for their counters: often until the speeds of all are known,
// as what the first requests hold is placed before and stays where it is; then now and then.
class SpeedRounds {
 public:
  // Called once a step; true if the nodes are to be asked now.
  bool Next(bool all_known) {
    if (++steps_ < (all_known ? kSteps : kFirstSteps)) return false;
    steps_ = 0;
    return true;
  }

  static constexpr int kFirstSteps = 4;
  static constexpr int kSteps = 32;

 private:
  int steps_ = 0;
};

}  // namespace lamina
