#include "model/families/glm4.h"

#include "model/families/config_readers.h"
#include "model/families/llama.h"
#include "model/families/phi3.h"

namespace lamina {
namespace {

Tensor GlmLayer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  return LlamaLayerWith(c, layer, x, positions, {LlamaAttention, FusedMlp});
}

Tensor Glm4Attention(const ModelConfig& c, const ModulePath& at, int layer, Tensor x,
                     Tensor positions) {
  return RmsNorm(LlamaAttention(c, at, layer, x, positions), at / "post_self_attn_layernorm",
                 {.eps = c.norm_eps});
}

Tensor Glm4Mlp(const ModelConfig& c, const ModulePath& at, int layer, Tensor x) {
  return RmsNorm(FusedMlp(c, at, layer, x), at / "post_mlp_layernorm", {.eps = c.norm_eps});
}

Tensor Glm4Layer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  return LlamaLayerWith(c, layer, x, positions, {Glm4Attention, Glm4Mlp});
}

}  // namespace

void ReadGlm(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config, 0.5);
  config.rope_interleaved = true;
  config.qkv_bias = keys.OptionalBool("attention_bias").value_or(true);
}

Tensor GlmForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, GlmLayer);
}

Tensor Glm4Forward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, Glm4Layer);
}

}  // namespace lamina
