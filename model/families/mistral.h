// Mistral: LLaMA's layout with attention over a sliding window ("Mistral 7B", section 2), which
// later releases have dropped. Mixtral: the same with a mixture of experts in place of the MLP
// ("Mixtral of Experts", section 2).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Read the keys of MistralForCausalLM and MixtralForCausalLM. Mistral's forward code is
// LlamaForward.
void ReadMistral(JsonKeys& keys, ModelConfig& config);
void ReadMixtral(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor MixtralForward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
