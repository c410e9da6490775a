// LLaMA 1, 2 and 3, and the code that models of the same layout share: RMSNorm before each block,
// rotary positions, grouped-query attention, SwiGLU ("LLaMA: Open and Efficient Foundation Language
// Models", section 2.2).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Reads the keys of LlamaForCausalLM.
void ReadLlama(JsonKeys& keys, ModelConfig& config);

// Reads the keys that LLaMA and the models of its layout share: all but biases and windows.
void ReadLlamaLayout(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits. `config` says what models of this layout differ in:
// which projections have a bias, windows, norms of q and k.
Tensor LlamaForward(const ModelConfig& config, Tensor tokens, Tensor positions);

// The MLP of a layer: [hidden_size] -> [hidden_size]. `at` is the layer's path.
using MlpFunction = Tensor (*)(const ModelConfig& config, const ModulePath& at, Tensor x);
// LlamaForward with another MLP.
Tensor LlamaForwardWith(const ModelConfig& config, Tensor tokens, Tensor positions,
                        MlpFunction mlp);

// The attention block of a layer: x [hidden_size] is projected to q, k and v, their heads are
// rotated and attended with, and the result is projected back to [hidden_size].
Tensor LlamaAttention(const ModelConfig& config, const ModulePath& at, int layer, Tensor x,
                      Tensor positions);

// The shape of a layer's attention, from the config.
TracedAttention AttentionOf(const ModelConfig& config, int layer);

}  // namespace lamina
