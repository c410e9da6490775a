#include "plan/workload/arrivals.h"

#include <fmt/format.h>

#include <cmath>

#include "plan/workload/random_stream.h"
#include "plan/workload/request_trace.h"

namespace lamina {
namespace {

constexpr uint64_t kArrivalStream = 1;  // streams 2 and 3: workload.cc
// With less, a gap is either 0 or the whole run, and sums of such gaps cannot be rescaled.
constexpr double kLeastBurstiness = 1e-3;

Status CheckArrivals(const ArrivalOptions& options) {
  // Conditions are negated so that a NaN is refused, here and below.
  if (!(options.burstiness >= kLeastBurstiness))
    return InvalidArgument(
        fmt::format("a burstiness of {} is less than {}; expected about 1, or inf",
                    options.burstiness, kLeastBurstiness));
  if (options.ramp == Ramp::kNone) {
    if (options.requests_per_second > 0) return OkStatus();
    return InvalidArgument(fmt::format(
        "a request rate of {} is not positive; leave it out to send all requests at once",
        options.requests_per_second));
  }
  for (const double rate : {options.ramp_start, options.ramp_end}) {
    if (rate > 0 && std::isfinite(rate)) continue;
    return InvalidArgument(fmt::format("a ramp from {} to {} requests/s: both must be positive",
                                       options.ramp_start, options.ramp_end));
  }
  return OkStatus();
}

double RateAt(const ArrivalOptions& options, double progress) {
  switch (options.ramp) {
    case Ramp::kNone: return options.requests_per_second;
    case Ramp::kLinear:
      return options.ramp_start + (options.ramp_end - options.ramp_start) * progress;
    case Ramp::kExponential:
      return options.ramp_start * std::pow(options.ramp_end / options.ramp_start, progress);
  }
  return options.requests_per_second;
}

}  // namespace

Result<std::vector<double>> MakeArrivals(int64_t count, const ArrivalOptions& options) {
  LAMINA_RETURN_IF_ERROR(CheckArrivals(options));
  std::vector<double> arrivals;
  arrivals.reserve(static_cast<size_t>(count));
  RandomStream random(options.seed, kArrivalStream);
  const bool constant = std::isinf(options.burstiness);
  double now = 0, expected = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double mean_gap =
        1 / RateAt(options, static_cast<double>(i) / static_cast<double>(count));
    now += mean_gap * (constant ? 1 : random.Gamma(options.burstiness) / options.burstiness);
    expected += mean_gap;
    arrivals.push_back(now);
  }
  if (!(expected <= kMaxArrivalSeconds)) {
    return InvalidArgument(fmt::format(
        "{} requests at this request rate take {:.3g} s, more than a year; ask for a higher rate",
        count, expected));
  }
  // All at once: there is nothing to rescale.
  if (now > 0) {
    for (double& arrival : arrivals) arrival *= expected / now;
  }
  return arrivals;
}

}  // namespace lamina
