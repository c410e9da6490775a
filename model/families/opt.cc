#include "model/families/opt.h"

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

// No key of config.json says another one.
constexpr double kOptNormEps = 1e-5;
// The first rows of the table belonged to padding when the models were trained.
constexpr int64_t kOptFirstPositionRow = 2;

Tensor OptAttention(const ModelConfig& c, const ModulePath& at, int layer, Tensor x) {
  const Tensor q = Linear(x, at / "q_proj", c.hidden_size, {.bias = true});
  const Tensor k = Linear(x, at / "k_proj", c.hidden_size, {.bias = true});
  const Tensor v = Linear(x, at / "v_proj", c.hidden_size, {.bias = true});
  return Linear(Attention(q, k, v, at / "attention", AttentionOf(c, at, layer)), at / "out_proj",
                c.hidden_size, {.bias = true});
}

Tensor OptMlp(const ModelConfig& c, const ModulePath& at, Tensor x) {
  return Linear(Relu(Linear(x, at / "fc1", c.intermediate_size, {.bias = true}), at / "relu"),
                at / "fc2", c.hidden_size, {.bias = true});
}

Tensor OptLayer(const ModelConfig& c, const ModulePath& at, int layer, Tensor x) {
  // The same two norms stand before the blocks or, in the 350m release, after the sums.
  const auto norm = [&](Tensor y, bool here, const char* name) {
    return here ? LayerNorm(y, at / name, {.eps = kOptNormEps}) : y;
  };
  const Tensor attention_in = norm(x, c.norm_first, "self_attn_layer_norm");
  x = Add(x, OptAttention(c, at / "self_attn", layer, attention_in), at / "attention_residual");
  x = norm(x, !c.norm_first, "self_attn_layer_norm");
  const Tensor mlp_in = norm(x, c.norm_first, "final_layer_norm");
  x = Add(x, OptMlp(c, at, mlp_in), at / "mlp_residual");
  return norm(x, !c.norm_first, "final_layer_norm");
}

}  // namespace

void ReadOpt(JsonKeys& keys, ModelConfig& config) {
  ReadSizes(keys, "ffn_dim", config);
  // OPT has no grouped-query attention.
  config.num_kv_heads = config.num_heads;
  config.embedding_size =
      keys.OptionalInt("word_embed_proj_dim", kWidthRange).value_or(config.hidden_size);
  config.norm_first = keys.OptionalBool("do_layer_norm_before").value_or(true);
  config.final_norm =
      config.norm_first && !keys.OptionalBool("_remove_final_layer_norm").value_or(false);
  config.tied_head = keys.OptionalBool("tie_word_embeddings").value_or(true);
  RequireOneOf(keys, "activation_function", {"relu"});
  RequireBool(keys, "enable_bias", true);
  RequireBool(keys, "layer_norm_elementwise_affine", true);
}

Tensor OptForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  const ModulePath at("model.decoder");
  const int64_t embedding_size = c.embedding_size == 0 ? c.hidden_size : c.embedding_size;
  const bool projects = embedding_size != c.hidden_size;
  Tensor x = Embedding(tokens, at / "embed_tokens", c.vocab_size, embedding_size);
  if (projects) x = Linear(x, at / "project_in", c.hidden_size);
  const PositionTable table{.max_positions = c.max_positions, .first_row = kOptFirstPositionRow};
  x = Add(x, PositionEmbedding(positions, at / "embed_positions", table, c.hidden_size),
          at / "positioned");
  for (int layer = 0; layer < c.num_layers; ++layer)
    x = OptLayer(c, at / "layers" / layer, layer, x);
  if (c.final_norm) x = LayerNorm(x, at / "final_layer_norm", {.eps = kOptNormEps});
  if (projects) x = Linear(x, at / "project_out", embedding_size);
  return Linear(x, ModulePath("lm_head"), c.vocab_size,
                {.weight = c.tied_head ? "model.decoder.embed_tokens.weight" : "lm_head.weight"});
}

}  // namespace lamina
