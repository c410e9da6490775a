// When requests arrive: gaps between them drawn at random for a given rate.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/status.h"

namespace lamina {

// A rate at which there are no gaps.
inline constexpr double kAllAtOnce = std::numeric_limits<double>::infinity();

// The rate goes from one to another over the requests, as `vllm bench serve` has it: at request i
// of n it is that at progress i / n.
enum class Ramp { kNone, kLinear, kExponential };

// How requests arrive. By default all at once.
struct ArrivalOptions {
  double requests_per_second = kAllAtOnce;  // without a ramp
  // The shape of the gaps' gamma distribution. 1: Poisson arrivals; less: bursts; more: more even;
  // infinity: constant gaps. The coefficient of variation is burstiness^-0.5.
  double burstiness = 1;
  Ramp ramp = Ramp::kNone;
  // The rates of a ramp, in requests/s.
  double ramp_start = 0, ramp_end = 0;
  uint64_t seed = 0;
};

// The times of `count` arrivals in seconds, ascending. The first comes one gap after 0, the last
// exactly when the mean rate says (count / rate; with a ramp the sum of 1 / rate over the
// requests): drawn gaps are rescaled to that, so that runs with different seeds offer the same
// load. kInvalidArgument for a rate that is not positive, a burstiness below 0.001, a ramp without
// finite positive ends, or arrivals over more than kMaxArrivalSeconds.
Result<std::vector<double>> MakeArrivals(int64_t count, const ArrivalOptions& options);

}  // namespace lamina
