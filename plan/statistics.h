// Percentiles and other figures of measured or simulated times.
#pragma once

#include <map>
#include <vector>

namespace lamina {

// The value below which `share` of the values lie, interpolated linearly between the two nearest
// ranks as numpy and vLLM do. REQUIRES: not empty; `share` in [0, 1].
double Percentile(std::vector<double> values, double share);
// The same of values that ascend, without a copy.
double PercentileOfSorted(const std::vector<double>& ascending, double share);

// Figures of one kind of time, over requests or over tokens, in milliseconds.
struct TimeFigures {
  double mean = 0, median = 0;
  double std = 0;  // of the population
  // By percent: 99 -> the 99th percentile.
  std::map<double, double> percentiles;
};

// All 0 if there are no values. REQUIRES: percents in [0, 100].
TimeFigures FiguresOf(std::vector<double> seconds, const std::vector<double>& percents);

}  // namespace lamina
