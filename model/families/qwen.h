// Qwen 1.5, 2, 2.5 (Qwen2ForCausalLM) and 3: LLaMA's layout. Qwen 2 has biases at q, k and v, Qwen
// 3 norms each head of q and k instead.
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"

namespace lamina {

void ReadQwen2(JsonKeys& keys, ModelConfig& config);
void ReadQwen3(JsonKeys& keys, ModelConfig& config);

}  // namespace lamina
