#include "bench/ideal_schedule.h"

#include <algorithm>

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
    // How many batches are on this batch's node, itself among them.
    const int on_node =
        (schedule.num_batches - 1 - batch % schedule.num_compute) / schedule.num_compute + 1;
    const double share = schedule.evenly
                             ? static_cast<double>(schedule.num_batches) / schedule.num_compute
                             : on_node;
    rounds.push_back(std::max(schedule.slices + schedule.attention, share * schedule.slices));
  }
  const double shortest = ShortestRound(rounds, schedule.memory_busy);
  for (double& round : rounds) round = std::max(round, shortest);
  return rounds;
}

}  // namespace lamina
