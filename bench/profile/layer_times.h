// What the linear layers of a model take on this machine's cores, operator by operator.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/compute_device.h"

namespace lamina {

// Seconds of one layer, the mean over the model's layers; names as in cost/layer_profile.h. Every
// operator between the embedding and the final norm counts in one of them, so that their sum is a
// layer whatever the family.
struct LayerTimes {
  int64_t rows = 0;
  double input_norm = 0, qkv = 0, rope = 0;  // before attention
  double output = 0, post_norm = 0, up = 0, activation = 0, down = 0;
  double add = 0;   // all additions together
  double head = 0;  // behind the last layer: final norm and logits of all rows

  double layer() const {
    return input_norm + qkv + rope + output + post_norm + up + activation + down + add;
  }
};

// Runs steps of each number of rows through all layers, one after the other as a step does, and
// takes the median of each operator over the steps. Calls `done` after each. REQUIRES: a whole
// model with its weights in this machine's memory; rows > 0.
std::vector<LayerTimes> MeasureLayers(const LoadedModel& model, const std::vector<int64_t>& rows,
                                      WorkerTeam& team,
                                      const std::function<void(const LayerTimes&)>& done);

// A CSV file of them that LayerProfile::Load reads.
std::string ToCsv(const ModelConfig& model, const std::vector<LayerTimes>& times);

}  // namespace lamina
