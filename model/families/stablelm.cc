#include "model/families/stablelm.h"

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

Tensor StableLmAttention(const ModelConfig& c, const ModulePath& layer_at, int layer, Tensor x,
                         Tensor positions) {
  const ModulePath at = layer_at / "self_attn";
  Projected projected = ProjectQkv(c, at, x);
  if (c.head_norm) {
    projected.q =
        HeadLayerNorm(projected.q, at / "q_layernorm.norms", c.num_heads, c.head_dim, c.norm_eps);
    projected.k = HeadLayerNorm(projected.k, at / "k_layernorm.norms", c.num_kv_heads, c.head_dim,
                                c.norm_eps);
  }
  return AttendRotated(c, at, layer, projected, positions);
}

Tensor StableLmLayer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  const ModulePath at = ModulePath("model.layers") / layer;
  const Tensor normed = LayerNorm(x, at / "input_layernorm", {.eps = c.norm_eps});
  const Tensor attention = StableLmAttention(c, at, layer, normed, positions);
  if (c.parallel_blocks) {
    x = Add(x, LlamaMlp(c, at, layer, normed), at / "mlp_residual");
    return Add(x, attention, at / "attention_residual");
  }
  x = Add(x, attention, at / "attention_residual");
  const Tensor mlp_in = LayerNorm(x, at / "post_attention_layernorm", {.eps = c.norm_eps});
  return Add(x, LlamaMlp(c, at, layer, mlp_in), at / "mlp_residual");
}

}  // namespace

void ReadStableLm(JsonKeys& keys, ModelConfig& config) {
  ReadSizes(keys, "intermediate_size", config);
  config.norm_eps = keys.OptionalReal("layer_norm_eps", {0, 1}).value_or(1e-5);
  config.tied_head = keys.OptionalBool("tie_word_embeddings").value_or(false);
  config.qkv_bias = keys.OptionalBool("use_qkv_bias").value_or(false);
  config.head_norm = keys.OptionalBool("qk_layernorm").value_or(false);
  config.parallel_blocks = keys.OptionalBool("use_parallel_residual").value_or(false);
  RequireOneOf(keys, "hidden_act", {"silu"});
  ReadRotary(keys, config, 0.25);
}

Tensor StableLmForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  Tensor x = Embedding(tokens, ModulePath("model.embed_tokens"), c.vocab_size, c.hidden_size);
  for (int layer = 0; layer < c.num_layers; ++layer) x = StableLmLayer(c, layer, x, positions);
  return HeadOf(c, LayerNorm(x, ModulePath("model.norm"), {.eps = c.norm_eps}));
}

}  // namespace lamina
