#include <algorithm>
#include <cmath>

#include "plan/simulate/simulation.h"

namespace lamina {
namespace {

// Bucket i holds durations from kShortest * kStep^i on; bucket 0 also has all shorter ones.
constexpr double kShortest = 1e-7, kStep = 1.0025;

}  // namespace

void DurationCounts::Add(Clock::duration duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (duration != last_) {
    last_ = duration;
    last_index_ = seconds <= kShortest
                      ? 0
                      : static_cast<size_t>(std::log(seconds / kShortest) / std::log(kStep));
    if (last_index_ >= counts_.size()) counts_.resize(last_index_ + 1);
  }
  ++counts_[last_index_];
  ++count_;
  sum_s_ += seconds;
  sum_squares_ += seconds * seconds;
}

double DurationCounts::stddev_s() const {
  return count_ == 0 ? 0
                     : std::sqrt(std::max(
                           0.0, sum_squares_ / static_cast<double>(count_) - mean_s() * mean_s()));
}

double DurationCounts::PercentileSeconds(double share) const {
  if (count_ == 0) return 0;
  const auto rank =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share * static_cast<double>(count_))));
  int64_t before = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    before += counts_[i];
    if (before >= rank) return kShortest * std::pow(kStep, static_cast<double>(i) + 0.5);
  }
  return 0;
}

}  // namespace lamina
