// Measures our rate and a reference's in turn, so that a machine whose speed drifts does not decide
// their ratio, which is the median over the pairs.
#pragma once

#include <functional>
#include <string>

#include "bench/report.h"

namespace lamina {

// What is compared.
struct RatePair {
  std::string unit;
  std::string reference;
  std::string note;
  std::function<double()> ours;   // one sample, in `unit`
  std::function<double()> other;  // one sample of the reference, in `unit`
};

// `name` and `sizes` are the case. The note begins with the ratio of the best samples: on a busy
// machine they say what an idle one would do. p99 is the first percentile of our rates, that of the
// slowest samples. REQUIRES: repeats >= 1.
Measurement MeasureRatePair(const std::string& name, const nlohmann::json& sizes, int repeats,
                            const RatePair& pair);

}  // namespace lamina
