// Qwen 1.5, 2, 2.5 (Qwen2ForCausalLM) and 3 (Qwen3ForCausalLM): LLaMA's layout, and LlamaForward as
// forward code. In Qwen 2 the projections to q, k and v have a bias; in Qwen 3 each head of q and k
// is normed instead.
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"

namespace lamina {

void ReadQwen2(JsonKeys& keys, ModelConfig& config);
void ReadQwen3(JsonKeys& keys, ModelConfig& config);

}  // namespace lamina
