// A matrix from a checkpoint in the order of the kernels.
#pragma once

#include "base/worker_team.h"
#include "compute_node/packed_file.h"
#include "compute_node/weight_reader.h"
#include "kernels/linear.h"

namespace lamina {

// Of a matrix that WeightReader gave. Aborts as PackedWeights does.
inline PackedWeights Pack(const FoundWeight& found, WorkerTeam& team) {
  const int64_t out = found.weight.shape[0], in = found.weight.shape[1];
  if (!found.panels.empty()) {
    return PackedWeights(found.format, out, in, team,
                         [&](int64_t begin, int64_t end, std::byte* to) {
                           ReadPanels(found.panels, begin, end, to);
                         });
  }
  if (found.quantized) return PackedWeights(*found.quantized, team);
  return PackedWeights(found.tensor.data.data(), found.tensor.dtype, out, in, team);
}

}  // namespace lamina
