// OPT: LayerNorm, learned positions, ReLU, biases everywhere ("OPT: Open Pre-trained Transformer
// Language Models", section 2).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

void ReadOpt(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits. The 350m release norms behind its blocks and embeds
// tokens in fewer elements than it computes with.
Tensor OptForward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
