// OPT ("OPT: Open Pre-trained Transformer Language Models", section 2): LayerNorm, learned
// positions, ReLU, biases everywhere.
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Reads the keys of OPTForCausalLM.
void ReadOpt(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits. The 350m release differs from the others: its norms
// stand after the blocks, and its embedding is narrower than hidden_size.
Tensor OptForward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
