// Gemma 2 and 3: norms before and after each block, and a window in most layers. Gemma 2 has soft
// caps of scores and logits ("Gemma 2: Improving Open Language Models at a Practical Size", section
// 2), Gemma 3 norms of q and k, and another rotation in layers with a window ("Gemma 3 Technical
// Report", section 2).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Read the keys of Gemma2ForCausalLM and Gemma3ForCausalLM.
void ReadGemma2(JsonKeys& keys, ModelConfig& config);
void ReadGemma3(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor GemmaForward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
