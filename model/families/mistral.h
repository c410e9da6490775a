// Mistral: LLaMA's layout with attention over a sliding window ("Mistral 7B", section 2), which
// later releases do without. Mixtral: the same with a mixture of experts for an MLP ("Mixtral of
// Experts", section 2).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

void ReadMistral(JsonKeys& keys, ModelConfig& config);
void ReadMixtral(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor MixtralForward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
