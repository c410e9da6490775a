// LLaMA 1, 2 and 3 and their relatives with the same layout: RMSNorm before each block, rotary
// positions, grouped-query attention, SwiGLU.
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Keys of LlamaForCausalLM.
void ReadLlama(JsonKeys& keys, ModelConfig& config);

// What ReadLlama and its relatives share: all but biases and windows.
void ReadLlamaLayout(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits, as in "LLaMA: Open and Efficient Foundation Language
// Models", section 2.2. Relatives differ in which projections have a bias, in windows, and in norms
// of q and k.
Tensor LlamaForward(const ModelConfig& config, Tensor tokens, Tensor positions);

// Relatives may have another MLP: `mlp` is handed its input and the layer's path.
using MlpFunction = Tensor (*)(const ModelConfig& config, const ModulePath& at, Tensor x);
Tensor LlamaForwardWith(const ModelConfig& config, Tensor tokens, Tensor positions,
                        MlpFunction mlp);

// A block of it: attention over the rotated heads that are projected from x, and the projection
// back to hidden_size.
Tensor LlamaAttention(const ModelConfig& config, const ModulePath& at, int layer, Tensor x,
                      Tensor positions);

// The attention of a layer as the config shapes it.
TracedAttention AttentionOf(const ModelConfig& config, int layer);

}  // namespace lamina
