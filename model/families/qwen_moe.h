// Qwen 1.5 MoE, Qwen 2 MoE and Qwen 3 MoE: the attention of Qwen 2 and 3, and in most layers
// experts in place of the MLP. Qwen 2 has one expert more, which all tokens go through, behind a
// gate ("Qwen2 Technical Report", section 2.2.2).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Read the keys of Qwen2MoeForCausalLM and Qwen3MoeForCausalLM.
void ReadQwen2Moe(JsonKeys& keys, ModelConfig& config);
void ReadQwen3Moe(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor QwenMoeForward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
