// How fast a memory node's attention is, from what it says of itself now and then.
#pragma once

#include <cstdint>
#include <optional>

#include "splitter/control.pb.h"

namespace lamina {

// Value type.
class AttentionSpeed {
 public:
  // Tokens read per microsecond; none before the first measurement.
  std::optional<double> value() const { return value_; }

  // Takes the node's counters; true if they gave a measurement. Messages that took less than kMeaningfulUs on average are mostly overhead
  // and say nothing. Old measurements fade by half with each new one.
  bool Update(const control::Stats& now);

  static constexpr int64_t kMeaningfulUs = 50;

 private:
  control::Stats before_;
  std::optional<double> value_;
};

}  // namespace lamina
