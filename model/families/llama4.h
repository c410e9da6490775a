// Llama 4: LLaMA's layers with experts; most layers attend within chunks, the others to all tokens
// and without a rotation ("The Llama 4 herd", 2025; what its checkpoints compute is said by
// transformers' modeling_llama4.py).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

void ReadLlama4(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor Llama4Forward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
