#include "bench/ideal_schedule.h"

#include <algorithm>

#include "scheduler/round.h"

namespace lamina {
namespace {

// The shortest round r such that batches whose own round is shorter take r, and the attention of
// all fits: the sum of busy / max(own, r) over the batches is at most 1.
double ShortestRound(std::vector<double> own, double busy) {
  std::sort(own.begin(), own.end());
  double rest = 1;  // share of the memory nodes' time that slower batches leave
  for (size_t num_faster = own.size(); num_faster > 0; --num_faster) {
    const double round = static_cast<double>(num_faster) * busy / rest;
    if (round >= own[num_faster - 1]) return round;
    rest -= busy / own[num_faster - 1];
  }
  return 0;  // the memory nodes are fast enough
}

}  // namespace

std::vector<double> IdealRounds(const IdealSchedule& schedule) {
  std::vector<double> rounds;
  for (int batch = 0; batch < schedule.num_batches; ++batch) {
    const double steps =
        StepsOnNodeOf(batch, schedule.num_batches, schedule.num_compute, schedule.evenly);
    // What the memory nodes take is shared by all batches, and comes below.
    rounds.push_back(
        RoundSeconds({.step = schedule.slices + schedule.attention, .slices = schedule.slices},
                     steps, schedule.num_batches));
  }
  const double shortest = ShortestRound(rounds, schedule.memory_busy);
  for (double& round : rounds) round = std::max(round, shortest);
  return rounds;
}

}  // namespace lamina
