// How long a client may let its answer wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace lamina {

// A client that takes a byte now and then would keep an answer's memory for ever. So it may let the
// answer wait for some time, and what it takes earns it as much further time as that would need at
// the slowest rate that is served, but never more than it had in the beginning. Only the time
// counts in which bytes wait for the client, so that a stream whose tokens come slowly is not cut
// off. Value type.
class ClientPatience {
 public:
  // REQUIRES: bytes_per_second > 0.
  ClientPatience(Clock::duration longest, size_t bytes_per_second)
      : longest_(longest),
        left_(longest),
        bytes_per_second_(static_cast<double>(bytes_per_second)) {}

  // Counts that the client took `bytes` after they had waited for it for `waited`.
  void Took(size_t bytes, Clock::duration waited) {
    const std::chrono::duration<double> earned(static_cast<double>(bytes) / bytes_per_second_);
    const std::chrono::duration<double> left =
        std::min<std::chrono::duration<double>>(left_ - waited + earned, longest_);
    left_ = std::max(std::chrono::duration_cast<Clock::duration>(left), Clock::duration::zero());
  }

  // How long it may let the next bytes wait.
  Clock::duration left() const { return left_; }

 private:
  Clock::duration longest_;
  Clock::duration left_;
  double bytes_per_second_;
};

}  // namespace lamina
