// gpt-oss: LLaMA's layers with a sink in each head's softmax, windows in every other layer, and
// experts with biases and a limited SwiGLU ("gpt-oss-120b & gpt-oss-20b Model Card", 2025, section
// 2).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Reads the keys of GptOssForCausalLM.
void ReadGptOss(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor GptOssForward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
