// What a cluster YAML leaves open, decided for a model.
#pragma once

#include "base/cluster_config.h"
#include "base/status.h"
#include "splitter/model_config.h"

namespace lamina {

// Fills in what the YAML leaves to the model: max_model_len, kv_dtype, served_name. kInvalidArgument if limits contradict each other or the
// model.
Status ResolveConfig(ClusterConfig& config, const ModelConfig& model);

}  // namespace lamina
