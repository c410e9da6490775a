// Nemotron-4 and Minitron: LayerNorm with weights less 1, heads of which a part is rotated, and an
// MLP without a gate whose activation is the square of ReLU ("Nemotron-4 15B Technical Report",
// section 2).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Reads the keys of NemotronForCausalLM.
void ReadNemotron(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor NemotronForward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
