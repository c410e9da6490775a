// Measures what the linear layers of a model take on this machine's cores, operator by operator,
// for `lamina bench profile`.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/compute_device.h"

namespace lamina {

// Seconds of one layer, as the mean over the model's layers; the names are those of
// cost/layer_profile.h. Every operator between the embedding and the final norm counts in one of
// them, so that their sum is a layer whatever the model's family.
struct LayerTimes {
  int64_t rows = 0;
  double input_norm = 0, qkv = 0, rope = 0;                            // before attention
  double output = 0, post_norm = 0, up = 0, activation = 0, down = 0;  // behind attention
  double add = 0;                                                      // all additions together
  // Behind the last layer: the final norm, and the logits of all rows.
  double head = 0;

  double layer() const {
    return input_norm + qkv + rope + output + post_norm + up + activation + down + add;
  }
};

// Runs steps of each number of rows through all layers, one layer after the other as in a real
// step, and takes the median of each operator over the steps. Calls `done` after each number of
// rows. REQUIRES: a whole model with its weights in this machine's memory; rows > 0.
std::vector<LayerTimes> MeasureLayers(const LoadedModel& model, const std::vector<int64_t>& rows,
                                      WorkerTeam& team,
                                      const std::function<void(const LayerTimes&)>& done);

// A CSV file that LayerProfile::Load reads.
std::string ToCsv(const ModelConfig& model, const std::vector<LayerTimes>& times);

}  // namespace lamina
