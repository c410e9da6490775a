#include "model/families/llama.h"

#include <string>

#include "model/families/config_readers.h"

namespace lamina {
namespace {

Tensor LlamaLayer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  return LlamaLayerWith(c, layer, x, positions, {LlamaAttention, LlamaMlp});
}

}  // namespace

void ReadLlamaLayout(JsonKeys& keys, ModelConfig& config, std::optional<double> rotary_part) {
  ReadSizes(keys, "intermediate_size", config);
  config.norm_eps = keys.Real("rms_norm_eps", {0, 1});
  config.tied_head = keys.OptionalBool("tie_word_embeddings").value_or(false);
  RequireOneOf(keys, "hidden_act", {"silu"});
  ReadRotary(keys, config, rotary_part);
}

void ReadLlama(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config);
  config.qkv_bias = config.o_bias = keys.OptionalBool("attention_bias").value_or(false);
  config.mlp_bias = keys.OptionalBool("mlp_bias").value_or(false);
}

void ReadSmolLm3(JsonKeys& keys, ModelConfig& config) {
  ReadLlama(keys, config);
  config.tied_head = keys.OptionalBool("tie_word_embeddings").value_or(true);
  RequireBool(keys, "use_sliding_window", false);
  ReadRotatedLayers(keys, config);
}

void ReadSeedOss(JsonKeys& keys, ModelConfig& config) {
  ReadLlama(keys, config);
  config.qkv_bias = keys.OptionalBool("attention_bias").value_or(true);
  config.o_bias = keys.OptionalBool("attention_out_bias").value_or(false);
}

TracedAttention AttentionOf(const ModelConfig& c, const ModulePath& at, int layer) {
  return {.layer = layer,
          .num_heads = c.num_heads,
          .num_kv_heads = c.num_kv_heads,
          .head_dim = c.head_dim,
          .scale = c.AttentionScale(),
          .window = c.WindowOf(layer),
          .soft_cap = c.attention_soft_cap,
          .sinks = c.attention_sinks ? (at / "sinks").text() : std::string()};
}

RopeHeads RotaryOf(const ModelConfig& c, int layer, int num_heads) {
  const bool local = c.local_rope_theta > 0 && c.WindowOf(layer).any();
  const RopeScaling scaling = local ? RopeScaling() : c.rope_scaling;
  const double theta = local ? c.local_rope_theta : c.rope_theta;
  return {.num_heads = num_heads,
          .head_dim = c.head_dim,
          .inverse_frequencies = InverseFrequencies(theta, c.rotary_dim(), scaling),
          .interleaved = c.rope_interleaved,
          .scale = scaling.attention_factor};
}

Tensor HeadOf(const ModelConfig& c, Tensor x) {
  x = Linear(x, ModulePath("lm_head"), c.vocab_size,
             {.weight = c.tied_head ? "model.embed_tokens.weight" : "lm_head.weight"});
  return ScaledBy(c.logit_multiplier, x, ModulePath("lm_head.scale"));
}

Tensor ScaledBy(double factor, Tensor x, const ModulePath& at) {
  return factor == 1 ? x : Scale(x, at, factor);
}

Projected ProjectQkv(const ModelConfig& c, const ModulePath& at, Tensor x) {
  const int64_t q_width = int64_t{c.num_heads} * c.head_dim;
  const int64_t kv_width = int64_t{c.num_kv_heads} * c.head_dim;
  const LinearOptions options{.bias = c.qkv_bias};
  const Tensor q = Linear(x, at / "q_proj", q_width, options);
  const Tensor k = Linear(x, at / "k_proj", kv_width, options);
  return {q, k, Linear(x, at / "v_proj", kv_width, options)};
}

Tensor AttendRotated(const ModelConfig& c, const ModulePath& at, int layer,
                     const Projected& projected, Tensor positions) {
  Tensor q = projected.q, k = projected.k;
  if (c.IsRotated(layer)) {
    q = Rope(q, positions, at / "q_rope", RotaryOf(c, layer, c.num_heads));
    k = Rope(k, positions, at / "k_rope", RotaryOf(c, layer, c.num_kv_heads));
  }
  const Tensor out = Attention(q, k, projected.v, at / "attention", AttentionOf(c, at, layer));
  return Linear(out, at / "o_proj", c.hidden_size, {.bias = c.o_bias});
}

Tensor LlamaAttention(const ModelConfig& c, const ModulePath& layer_at, int layer, Tensor x,
                      Tensor positions) {
  const ModulePath at = layer_at / "self_attn";
  Projected projected = ProjectQkv(c, at, x);
  if (c.head_norm) {
    // The norm comes before the rotation, as in Qwen 3.
    const RmsNormOptions options{.eps = c.norm_eps, .plus = c.norm_plus};
    projected.q = HeadNorm(projected.q, at / "q_norm", c.num_heads, c.head_dim, options);
    projected.k = HeadNorm(projected.k, at / "k_norm", c.num_kv_heads, c.head_dim, options);
  }
  return AttendRotated(c, at, layer, projected, positions);
}

Tensor LlamaMlp(const ModelConfig& c, const ModulePath& layer_at, int /*layer*/, Tensor x) {
  return SwigluMlp(x, layer_at / "mlp", c.intermediate_size, {.bias = c.mlp_bias});
}

Tensor SwigluMlp(Tensor x, const ModulePath& at, int64_t inner, const LinearOptions& options) {
  const Tensor gate = Linear(x, at / "gate_proj", inner, options);
  const Tensor up = Linear(x, at / "up_proj", inner, options);
  return Linear(SiluMul(gate, up, at / "silu_mul"), at / "down_proj", x.width(), options);
}

Tensor LlamaLayerWith(const ModelConfig& c, int layer, Tensor x, Tensor positions,
                      const LlamaBlocks& blocks) {
  const ModulePath at = ModulePath("model.layers") / layer;
  const Tensor attention_in = RmsNorm(x, at / "input_layernorm", {.eps = c.norm_eps});
  const Tensor attention = blocks.attention(c, at, layer, attention_in, positions);
  x = Add(x, ScaledBy(c.residual_multiplier, attention, at / "attention_scale"),
          at / "attention_residual");
  const Tensor mlp_in = RmsNorm(x, at / "post_attention_layernorm", {.eps = c.norm_eps});
  const Tensor mlp = blocks.mlp(c, at, layer, mlp_in);
  return Add(x, ScaledBy(c.residual_multiplier, mlp, at / "mlp_scale"), at / "mlp_residual");
}

Tensor LlamaForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, LlamaLayer);
}

Tensor LlamaForwardWith(const ModelConfig& c, Tensor tokens, Tensor positions,
                        LayerFunction layer_function) {
  Tensor x = Embedding(tokens, ModulePath("model.embed_tokens"), c.vocab_size, c.hidden_size);
  x = ScaledBy(c.embedding_multiplier, x, ModulePath("model.embed_scale"));
  for (int layer = 0; layer < c.num_layers; ++layer) x = layer_function(c, layer, x, positions);
  return HeadOf(c, RmsNorm(x, ModulePath("model.norm"), {.eps = c.norm_eps}));
}

}  // namespace lamina
