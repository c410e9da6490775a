#include "model/families/nemotron.h"

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

Tensor NemotronNorm(const ModelConfig& c, Tensor x, const ModulePath& at) {
  return LayerNorm(x, at, {.eps = c.norm_eps, .plus = 1});
}

Tensor NemotronMlp(const ModelConfig& c, const ModulePath& at, Tensor x) {
  const LinearOptions options{.bias = c.mlp_bias};
  const Tensor up = Relu(Linear(x, at / "up_proj", c.intermediate_size, options), at / "relu");
  return Linear(Mul(up, up, at / "square"), at / "down_proj", c.hidden_size, options);
}

Tensor NemotronLayer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  const ModulePath at = ModulePath("model.layers") / layer;
  const Tensor attention_in = NemotronNorm(c, x, at / "input_layernorm");
  x = Add(x, LlamaAttention(c, at, layer, attention_in, positions), at / "attention_residual");
  const Tensor mlp_in = NemotronNorm(c, x, at / "post_attention_layernorm");
  return Add(x, NemotronMlp(c, at / "mlp", mlp_in), at / "mlp_residual");
}

}  // namespace

void ReadNemotron(JsonKeys& keys, ModelConfig& config) {
  ReadSizes(keys, "intermediate_size", config);
  config.norm_eps = keys.OptionalReal("norm_eps", {0, 1}).value_or(1e-5);
  config.tied_head = keys.OptionalBool("tie_word_embeddings").value_or(false);
  config.qkv_bias = config.o_bias = keys.OptionalBool("attention_bias").value_or(false);
  config.mlp_bias = keys.OptionalBool("mlp_bias").value_or(false);
  RequireOneOf(keys, "hidden_act", {"relu2"});
  ReadRotary(keys, config, 0.5);
}

Tensor NemotronForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  Tensor x = Embedding(tokens, ModulePath("model.embed_tokens"), c.vocab_size, c.hidden_size);
  for (int layer = 0; layer < c.num_layers; ++layer) x = NemotronLayer(c, layer, x, positions);
  return HeadOf(c, NemotronNorm(c, x, ModulePath("model.norm")));
}

}  // namespace lamina
