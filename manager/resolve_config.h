// What a cluster YAML leaves open, decided for a model.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/status.h"
#include "manager/cluster_config.h"
#include "model/model_config.h"

namespace lamina {

// Fills in what the YAML leaves to the model: max_model_len, kv_dtype, served_name.
// kInvalidArgument if limits contradict each other or the model.
Status ResolveConfig(ClusterConfig& config, const ModelConfig& model);

// What a kv_dtype names, auto the model's own; or a wire_dtype that ResolveConfig has seen.
DType DTypeOf(const std::string& name, const ModelConfig& model);

// Of K and V of one token, in all layers.
int64_t KvBytesPerToken(const ModelConfig& model, const std::string& kv_dtype);

}  // namespace lamina
