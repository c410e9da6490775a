#include "bench/kernels/kernel_samples.h"
#include "plan/statistics.h"

#include <fmt/format.h>

namespace lamina {

Measurement MeasureRatePair(const std::string& name, const nlohmann::json& sizes, int repeats,
                            const RatePair& pair) {
  std::vector<double> ours, other, ratios;
  pair.ours();  // warm-up: pages, caches, threads
  pair.other();
  for (int i = 0; i < repeats; ++i) {
    // Each is the first of every other pair, so that being first decides nothing.
    const bool ours_first = i % 2 == 0;
    if (ours_first) ours.push_back(pair.ours());
    other.push_back(pair.other());
    if (!ours_first) ours.push_back(pair.ours());
    ratios.push_back(ours.back() / other.back());
  }
  Measurement m;
  m.name = name;
  m.sizes = sizes;
  m.value = Percentile(ours, 0.5);
  m.unit = pair.unit;
  m.p99 = Percentile(ours, 0.01);
  m.p99_of = pair.unit + ", the slowest samples";
  m.reference = pair.reference;
  m.reference_value = Percentile(other, 0.5);
  m.ratio = Percentile(ratios, 0.5);
  const double best = Percentile(ours, 1), best_other = Percentile(other, 1);
  m.note = fmt::format("best of each {:.1f} / {:.1f} = {:.2f}{}{}", best, best_other,
                       best / best_other, pair.note.empty() ? "" : "; ", pair.note);
  return m;
}

}  // namespace lamina
