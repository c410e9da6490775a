// When requests come.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/status.h"

namespace lamina {

inline constexpr double kAllAtOnce = std::numeric_limits<double>::infinity();

// From one rate to another over the requests, as `vllm bench serve` has it: the rate at request i
// of n is that at progress i / n.
enum class Ramp { kNone, kLinear, kExponential };

struct ArrivalOptions {
  double requests_per_second = kAllAtOnce;  // without a ramp
  // Shape of the gamma distribution of the gaps: 1 Poisson, below 1 bursts, above 1 more even;
  // infinity: constant gaps. Coefficient of variation: burstiness^-0.5.
  double burstiness = 1;
  Ramp ramp = Ramp::kNone;
  double ramp_start = 0, ramp_end = 0;  // requests/s, with a ramp
  uint64_t seed = 0;
};

// Seconds of `count` arrivals, ascending. The first comes one gap after 0, the last exactly when
// the mean rate says (n / rate; with a ramp the sum of 1 / rate over the requests): the drawn gaps
// are rescaled to that, so that runs with different seeds offer the same load. kInvalidArgument: a
// rate that is not positive, a burstiness below 0.001, a ramp without finite ends, or more than
// kMaxArrivalSeconds.
Result<std::vector<double>> MakeArrivals(int64_t count, const ArrivalOptions& options);

}  // namespace lamina
