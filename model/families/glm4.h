// GLM-4 and GLM-4-0414: LLaMA's blocks with a fused MLP and heads of which a part is rotated, by
// pairs of neighbours. GLM-4-0414 has a second norm behind each block.
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Reads the keys of GlmForCausalLM and Glm4ForCausalLM.
void ReadGlm(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits, of GLM-4 and of GLM-4-0414.
Tensor GlmForward(const ModelConfig& config, Tensor tokens, Tensor positions);
Tensor Glm4Forward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
