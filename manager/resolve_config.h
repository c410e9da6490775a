// What a cluster YAML leaves open, decided for a model.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "manager/cluster_config.h"
#include "model/model_config.h"
#include "splitter/topology.h"

namespace lamina {

// Fills in what the YAML leaves to the model: max_model_len, kv_dtype, served_name.
// kInvalidArgument if limits contradict each other or the model.
Status ResolveConfig(ClusterConfig& config, const ModelConfig& model);

// Who has which part in the cluster. The members stand in the order of `config.nodes`.
// kInvalidArgument if its memory nodes do not make up whole groups. REQUIRES: ResolveConfig
// accepted `config`.
Result<View> ViewOf(const ClusterConfig& config, const ModelConfig& model);

// Of K and V of one token, in all layers.
int64_t KvBytesPerToken(const ModelConfig& model, DTypeSetting kv_dtype);

}  // namespace lamina
