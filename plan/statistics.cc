#include "plan/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace lamina {

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return PercentileOfSorted(values, share);
}

double PercentileOfSorted(const std::vector<double>& ascending, double share) {
  const double rank = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] +
         (rank - static_cast<double>(below)) * (ascending[above] - ascending[below]);
}

TimeFigures FiguresOf(std::vector<double> seconds, const std::vector<double>& percents) {
  TimeFigures figures;
  for (const double percent : percents) figures.percentiles[percent] = 0;
  if (seconds.empty()) return figures;
  std::sort(seconds.begin(), seconds.end());
  const auto count = static_cast<double>(seconds.size());
  double sum = 0, squares = 0;
  for (const double value : seconds) sum += value;
  for (const double value : seconds) squares += (value - sum / count) * (value - sum / count);
  figures.mean = 1e3 * sum / count;
  figures.std = 1e3 * std::sqrt(squares / count);
  figures.median = 1e3 * PercentileOfSorted(seconds, 0.5);
  for (auto& [percent, value] : figures.percentiles)
    value = 1e3 * PercentileOfSorted(seconds, percent / 100);
  return figures;
}

}  // namespace lamina
