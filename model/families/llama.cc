#include "model/families/llama.h"

#include "model/families/config_readers.h"

namespace lamina {
namespace {

Tensor LlamaMlp(const ModelConfig& c, const ModulePath& layer, Tensor x) {
  const ModulePath at = layer / "mlp";
  const LinearOptions options{.bias = c.mlp_bias};
  const Tensor gate = Linear(x, at / "gate_proj", c.intermediate_size, options);
  const Tensor up = Linear(x, at / "up_proj", c.intermediate_size, options);
  return Linear(SiluMul(gate, up, at / "silu_mul"), at / "down_proj", c.hidden_size, options);
}

Tensor LlamaLayer(const ModelConfig& c, int layer, Tensor x, Tensor positions, MlpFunction mlp) {
  const ModulePath at = ModulePath("model.layers") / layer;
  const Tensor attention_in = RmsNorm(x, at / "input_layernorm", {.eps = c.norm_eps});
  x = Add(x, LlamaAttention(c, at / "self_attn", layer, attention_in, positions),
          at / "attention_residual");
  const Tensor mlp_in = RmsNorm(x, at / "post_attention_layernorm", {.eps = c.norm_eps});
  return Add(x, mlp(c, at, mlp_in), at / "mlp_residual");
}

}  // namespace

void ReadLlamaLayout(JsonKeys& keys, ModelConfig& config) {
  ReadSizes(keys, "intermediate_size", config);
  config.norm_eps = keys.Real("rms_norm_eps", {0, 1});
  config.tied_head = keys.OptionalBool("tie_word_embeddings").value_or(false);
  RequireOneOf(keys, "hidden_act", {"silu"});
  ReadRotary(keys, config);
}

void ReadLlama(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config);
  config.qkv_bias = config.o_bias = keys.OptionalBool("attention_bias").value_or(false);
  config.mlp_bias = keys.OptionalBool("mlp_bias").value_or(false);
}

TracedAttention AttentionOf(const ModelConfig& c, int layer) {
  return {.layer = layer,
          .num_heads = c.num_heads,
          .num_kv_heads = c.num_kv_heads,
          .head_dim = c.head_dim,
          .scale = c.AttentionScale(),
          .window = c.WindowOf(layer),
          .soft_cap = c.attention_soft_cap};
}

Tensor LlamaAttention(const ModelConfig& c, const ModulePath& at, int layer, Tensor x,
                      Tensor positions) {
  const int64_t q_width = int64_t{c.num_heads} * c.head_dim;
  const int64_t kv_width = int64_t{c.num_kv_heads} * c.head_dim;
  Tensor q = Linear(x, at / "q_proj", q_width, {.bias = c.qkv_bias});
  Tensor k = Linear(x, at / "k_proj", kv_width, {.bias = c.qkv_bias});
  const Tensor v = Linear(x, at / "v_proj", kv_width, {.bias = c.qkv_bias});
  if (c.head_norm) {
    // The norm comes before the rotation, as in Qwen 3.
    q = HeadNorm(q, at / "q_norm", c.num_heads, c.head_dim, c.norm_eps);
    k = HeadNorm(k, at / "k_norm", c.num_kv_heads, c.head_dim, c.norm_eps);
  }
  const std::vector<float> frequencies = c.InverseFrequencies();
  q = Rope(q, positions, at / "q_rope", {c.num_heads, c.head_dim, frequencies});
  k = Rope(k, positions, at / "k_rope", {c.num_kv_heads, c.head_dim, frequencies});
  const Tensor out = Attention(q, k, v, at / "attention", AttentionOf(c, layer));
  return Linear(out, at / "o_proj", c.hidden_size, {.bias = c.o_bias});
}

Tensor LlamaForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, LlamaMlp);
}

Tensor LlamaForwardWith(const ModelConfig& c, Tensor tokens, Tensor positions, MlpFunction mlp) {
  Tensor x = Embedding(tokens, ModulePath("model.embed_tokens"), c.vocab_size, c.hidden_size);
  for (int layer = 0; layer < c.num_layers; ++layer) x = LlamaLayer(c, layer, x, positions, mlp);
  x = RmsNorm(x, ModulePath("model.norm"), {.eps = c.norm_eps});
  return Linear(x, ModulePath("lm_head"), c.vocab_size,
                {.weight = c.tied_head ? "model.embed_tokens.weight" : "lm_head.weight"});
}

}  // namespace lamina
