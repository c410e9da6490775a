#include "splitter/models/llama.h"

#include <cmath>

namespace lamina {
namespace {

Tensor SelfAttention(const ModelConfig& c, const Path& at, int layer, Tensor x, Tensor positions) {
  const int64_t q_width = int64_t{c.num_heads} * c.head_dim;
  const int64_t kv_width = int64_t{c.num_kv_heads} * c.head_dim;
  const LinearOptions options{.bias = c.attention_bias};

  Tensor q = Linear(x, at / "q_proj", q_width, options);
  Tensor k = Linear(x, at / "k_proj", kv_width, options);
  Tensor v = Linear(x, at / "v_proj", kv_width, options);
  q = Rope(q, positions, at / "q_rope", c.num_heads, c.head_dim);
  k = Rope(k, positions, at / "k_rope", c.num_kv_heads, c.head_dim);
  const AttentionShape shape{.layer = layer,
                             .num_heads = c.num_heads,
                             .num_kv_heads = c.num_kv_heads,
                             .head_dim = c.head_dim,
                             .scale = 1 / std::sqrt(static_cast<double>(c.head_dim))};
  const Tensor out = Attention(q, k, v, at / "attention", shape);
  return Linear(out, at / "o_proj", c.hidden_size, options);
}

Tensor Mlp(const ModelConfig& c, const Path& at, Tensor x) {
  const LinearOptions options{.bias = c.mlp_bias};
  const Tensor gate = Linear(x, at / "gate_proj", c.intermediate_size, options);
  const Tensor up = Linear(x, at / "up_proj", c.intermediate_size, options);
  return Linear(SiluMul(gate, up, at / "silu_mul"), at / "down_proj", c.hidden_size, options);
}

Tensor DecoderLayer(const ModelConfig& c, const Path& at, int layer, Tensor x, Tensor positions) {
  const Tensor attention_in = RmsNorm(x, at / "input_layernorm", c.norm_eps);
  x = Add(x, SelfAttention(c, at / "self_attn", layer, attention_in, positions), at / "attention_residual");
  const Tensor mlp_in = RmsNorm(x, at / "post_attention_layernorm", c.norm_eps);
  return Add(x, Mlp(c, at / "mlp", mlp_in), at / "mlp_residual");
}

}  // namespace

Tensor LlamaForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  Tensor x = Embedding(tokens, Path("model.embed_tokens"), c.vocab_size, c.hidden_size);
  for (int layer = 0; layer < c.num_layers; ++layer) x = DecoderLayer(c, Path("model.layers") / layer, layer, x, positions);
  x = RmsNorm(x, Path("model.norm"), c.norm_eps);
  return Linear(x, Path("lm_head"), c.vocab_size, {.weight = c.tied_head ? "model.embed_tokens.weight" : "lm_head.weight"});
}

}  // namespace lamina
