// What processes add to the times of devices and network, in microseconds. All zero is a host that
// costs nothing. The numbers of a machine come from measurements on it (docs/simulate.md).
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

// A name that ends in row_us is the part that each row adds to the line before it.
struct HostCosts {
  // Manager: from a step's result to the orders of the next one at the compute node, one step at a
  // time.
  double step_us = 0;
  double row_us = 0;
  // Compute node, for each layer: gathering q, k and v, and taking the outputs.
  double layer_us = 0;
  double layer_row_us = 0;
  // Compute node, for each layer: each message to a memory node.
  double post_us = 0;
  // Memory node, for each piece of attention: looking up its rows, waking late, posting the output.
  double attend_us = 0;
  double attend_row_us = 0;
  // From a post until it is noticed. Counts where the modelled latency is not longer.
  double message_us = 0;
  // Compute node: from a row's logits to its token in the result.
  double sample_row_us = 0;

  // Reads a YAML file with these names as keys. kNotFound if it cannot be read; kInvalidArgument as
  // "FILE:LINE: what is wrong, what was expected".
  static Result<HostCosts> Load(const std::string& path);
};

inline Clock::duration FromMicroseconds(double us) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::micro>(us));
}

}  // namespace lamina
