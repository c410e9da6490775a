// What `lamina serve` says of a model and of the room for it before anything is loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/model_facts.h"
#include "manager/cluster_config.h"
#include "model/model_config.h"

namespace lamina {

// Tokens whose K and V the nodes have room for, as far as the configuration tells.
struct KvRoom {
  int64_t bytes_per_token = 0;
  int64_t all_tokens = 0;
  int64_t sequence_tokens = 0;  // of one sequence
};

// Nothing if some layers' K and V lie on a disk: how many tokens fit depends on more then.
// REQUIRES: ResolveConfig accepted `config`.
std::optional<KvRoom> KvRoomOf(const ClusterConfig& config, const ModelConfig& model);

// A few lines: parameters, bytes of weights, bytes of K and V, how many tokens fit, and which
// limits were chosen. The last one warns if a request of max_model_len tokens does not fit.
// REQUIRES: as above.
std::string StartScreen(const ClusterConfig& config, const ModelConfig& model,
                        const ModelFacts& facts);

}  // namespace lamina
