// Percentiles and other figures of measured or simulated times.
#pragma once

#include <map>
#include <vector>

namespace lamina {

// Linear between the two nearest ranks, as numpy's and vLLM's. REQUIRES: not empty; `share` in
// [0, 1].
double Percentile(std::vector<double> values, double share);
double PercentileOfSorted(const std::vector<double>& ascending, double share);

// Of one kind of time, over requests or over tokens. Milliseconds.
struct TimeFigures {
  double mean = 0, median = 0;
  double std = 0;                        // of the population
  std::map<double, double> percentiles;  // 99 -> value, as PercentileOfSorted has it
};

// REQUIRES: percents in [0, 100]. All 0 for no values.
TimeFigures FiguresOf(std::vector<double> seconds, const std::vector<double>& percents);

}  // namespace lamina
