// What processes add to the times of devices and network. Zero is a host that costs nothing; the
// numbers of a machine come from measurements on it (docs/simulate.md).
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

struct HostCosts {
  // Manager: from a step's result to the orders of the next one at the compute node, one at a time.
  double step_us = 0;
  double row_us = 0;  // of that, for each row
  // Compute node, for each layer: gathering q, k and v, and taking the outputs.
  double layer_us = 0;
  double layer_row_us = 0;  // of that, for each row
  double post_us = 0;       // likewise, for each message to a memory node
  // Memory node, for each piece of attention: looking its rows up, late wake-ups, posting the
  // output.
  double attend_us = 0;
  double attend_row_us = 0;  // of that, for each row
  double message_us = 0;     // from a post until it is noticed, where no slower network is modelled
  double sample_row_us = 0;  // compute node: logits to a token and into the result

  // A YAML file with these names as keys. kNotFound: no such file; kInvalidArgument: "FILE:LINE:
  // what is wrong, what was expected".
  static Result<HostCosts> Load(const std::string& path);
};

inline Clock::duration FromMicroseconds(double us) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::micro>(us));
}

}  // namespace lamina
