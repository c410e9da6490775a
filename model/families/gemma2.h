// Gemma 2 ("Gemma 2: Improving Open Language Models at a Practical Size", section 2): norms before
// and after each block, soft caps of scores and logits, a window in every other layer.
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Reads the keys of Gemma2ForCausalLM.
void ReadGemma2(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor Gemma2Forward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
