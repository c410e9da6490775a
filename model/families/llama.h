// LLaMA 1, 2 and 3, and the code that models of the same layout share: RMSNorm before each block,
// rotary positions, grouped-query attention, SwiGLU ("LLaMA: Open and Efficient Foundation Language
// Models", section 2.2).
#pragma once

#include <optional>

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Reads the keys of LlamaForCausalLM.
void ReadLlama(JsonKeys& keys, ModelConfig& config);

// SmolLM 3: some layers are not rotated (Yang et al., RoPE to NoPE and Back Again, 2025).
void ReadSmolLm3(JsonKeys& keys, ModelConfig& config);

// Seed-OSS: the projections to q, k and v have a bias, and the one back has none.
void ReadSeedOss(JsonKeys& keys, ModelConfig& config);

// Reads the keys that LLaMA and the models of its layout share: all but biases and windows.
// `rotary_part` is as for ReadRotary.
void ReadLlamaLayout(JsonKeys& keys, ModelConfig& config,
                     std::optional<double> rotary_part = std::nullopt);

// tokens, positions -> [vocab_size] logits. `config` says what models of this layout differ in:
// which projections have a bias, windows, norms of q and k, multipliers, and which layers are
// rotated.
Tensor LlamaForward(const ModelConfig& config, Tensor tokens, Tensor positions);

// A layer of the model: [hidden_size] -> [hidden_size].
using LayerFunction = Tensor (*)(const ModelConfig& config, int layer, Tensor x, Tensor positions);
// LlamaForward with other layers.
Tensor LlamaForwardWith(const ModelConfig& config, Tensor tokens, Tensor positions,
                        LayerFunction layer);

// The blocks of a layer: [hidden_size] -> [hidden_size]. `at` is the layer's path.
using AttentionFunction = Tensor (*)(const ModelConfig& config, const ModulePath& at, int layer,
                                     Tensor x, Tensor positions);
using MlpFunction = Tensor (*)(const ModelConfig& config, const ModulePath& at, int layer,
                               Tensor x);
struct LlamaBlocks {
  AttentionFunction attention;
  MlpFunction mlp;
};
// LLaMA's layer with other blocks: a norm stands before each, and a sum behind it.
Tensor LlamaLayerWith(const ModelConfig& config, int layer, Tensor x, Tensor positions,
                      const LlamaBlocks& blocks);

// The SwigluMlp "<at>.mlp" with intermediate_size.
Tensor LlamaMlp(const ModelConfig& config, const ModulePath& at, int layer, Tensor x);

// down(silu(gate x) * up x), of three projections below `at` with `inner` elements between them.
Tensor SwigluMlp(Tensor x, const ModulePath& at, int64_t inner, const LinearOptions& options = {});

// The attention below "<at>.self_attn": x is projected to q, k and v, their heads are rotated and
// attended with, and the result is projected back.
Tensor LlamaAttention(const ModelConfig& config, const ModulePath& at, int layer, Tensor x,
                      Tensor positions);

// q, k and v of an attention, with the biases that the config says. `at` is the path of the
// attention's module, here and below.
struct Projected {
  Tensor q, k, v;
};
Projected ProjectQkv(const ModelConfig& config, const ModulePath& at, Tensor x);

// What LlamaAttention does with q, k and v, from the rotation to the projection back.
Tensor AttendRotated(const ModelConfig& config, const ModulePath& at, int layer,
                     const Projected& projected, Tensor positions);

// The shape of a layer's attention, from the config.
TracedAttention AttentionOf(const ModelConfig& config, const ModulePath& at, int layer);
// The rotation of `num_heads` heads of a layer, from the config.
RopeHeads RotaryOf(const ModelConfig& config, int layer, int num_heads);
// The logits: x behind the last norm times the head, which may be the table of the embedding.
Tensor HeadOf(const ModelConfig& config, Tensor x);
// factor * x, or x itself if the factor is 1.
Tensor ScaledBy(double factor, Tensor x, const ModulePath& at);

}  // namespace lamina
