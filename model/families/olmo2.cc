#include "model/families/olmo2.h"

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

Tensor Olmo2Attention(const ModelConfig& c, const ModulePath& layer_at, int layer, Tensor x,
                      Tensor positions) {
  const ModulePath at = layer_at / "self_attn";
  Projected projected = ProjectQkv(c, at, x);
  projected.q = RmsNorm(projected.q, at / "q_norm", {.eps = c.norm_eps});
  projected.k = RmsNorm(projected.k, at / "k_norm", {.eps = c.norm_eps});
  return AttendRotated(c, at, layer, projected, positions);
}

Tensor Olmo2Layer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  const ModulePath at = ModulePath("model.layers") / layer;
  const Tensor attention = RmsNorm(Olmo2Attention(c, at, layer, x, positions),
                                   at / "post_attention_layernorm", {.eps = c.norm_eps});
  x = Add(x, attention, at / "attention_residual");
  const Tensor mlp =
      RmsNorm(LlamaMlp(c, at, layer, x), at / "post_feedforward_layernorm", {.eps = c.norm_eps});
  return Add(x, mlp, at / "mlp_residual");
}

}  // namespace

void ReadOlmo2(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config);
  config.qkv_bias = config.o_bias = keys.OptionalBool("attention_bias").value_or(false);
}

void ReadOlmo3(JsonKeys& keys, ModelConfig& config) {
  ReadOlmo2(keys, config);
  config.local_rope_theta = config.rope_theta;
  ReadRotaryByType(keys, config);
  ReadWindows(
      keys, 4096, [](int layer) { return (layer + 1) % 4 != 0; }, config);
}

Tensor Olmo2Forward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, Olmo2Layer);
}

}  // namespace lamina
