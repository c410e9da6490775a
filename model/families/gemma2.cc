#include "model/families/gemma2.h"

#include <cmath>

#include "base/dtype.h"
#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

// Embeddings are scaled by the root of hidden_size. The models were trained with that factor
// rounded to the dtype of their weights.
double Gemma2EmbeddingFactor(const ModelConfig& c) {
  const auto root = std::sqrt(static_cast<float>(c.hidden_size));
  switch (c.dtype) {
    case DType::kBF16: return ToFloat(ToBF16(root));
    case DType::kF16: return ToFloat(ToF16(root));
    case DType::kF32: return root;
    case DType::kF8: break;  // weights are never fp8
  }
  return root;
}

// The checkpoint holds the weights of norms less 1.
Tensor Gemma2Norm(const ModelConfig& c, Tensor x, const ModulePath& at) {
  return RmsNorm(x, at, {.eps = c.norm_eps, .plus = 1});
}

Tensor Gemma2Mlp(const ModelConfig& c, const ModulePath& at, Tensor x) {
  const Tensor gate = Linear(x, at / "gate_proj", c.intermediate_size);
  const Tensor up = Linear(x, at / "up_proj", c.intermediate_size);
  return Linear(GeluMul(gate, up, at / "gelu_mul"), at / "down_proj", c.hidden_size);
}

Tensor Gemma2Layer(const ModelConfig& c, const ModulePath& at, int layer, Tensor x,
                   Tensor positions) {
  const Tensor attention = LlamaAttention(c, at / "self_attn", layer,
                                          Gemma2Norm(c, x, at / "input_layernorm"), positions);
  x = Add(x, Gemma2Norm(c, attention, at / "post_attention_layernorm"), at / "attention_residual");
  const Tensor mlp = Gemma2Mlp(c, at / "mlp", Gemma2Norm(c, x, at / "pre_feedforward_layernorm"));
  return Add(x, Gemma2Norm(c, mlp, at / "post_feedforward_layernorm"), at / "mlp_residual");
}

}  // namespace

void ReadGemma2(JsonKeys& keys, ModelConfig& config) {
  ReadSizes(keys, "intermediate_size", config);
  if (!keys.Has("head_dim")) keys.Reject("head_dim", "the elements of a head");
  config.norm_eps = keys.Real("rms_norm_eps", {0, 1});
  config.tied_head = keys.OptionalBool("tie_word_embeddings").value_or(true);
  config.qkv_bias = config.o_bias = keys.OptionalBool("attention_bias").value_or(false);
  config.query_pre_attn_scalar = keys.Real("query_pre_attn_scalar", kPositiveRange);
  // A missing key means the family's default, a null that there is no cap.
  const auto cap = [&](const char* key, double absent) {
    return keys.OptionalReal(key, kPositiveRange).value_or(keys.IsNull(key) ? 0 : absent);
  };
  config.attention_soft_cap = cap("attn_logit_softcapping", 50);
  config.logit_soft_cap = cap("final_logit_softcapping", 30);
  RequireOneOf(keys, "hidden_activation", {"gelu_pytorch_tanh"});
  ReadRotary(keys, config);
  ReadWindows(
      keys, 4096, [](int layer) { return layer % 2 == 0; }, config);
}

Tensor Gemma2Forward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  Tensor x = Embedding(tokens, ModulePath("model.embed_tokens"), c.vocab_size, c.hidden_size);
  x = Scale(x, ModulePath("model.embed_scale"), Gemma2EmbeddingFactor(c));
  for (int layer = 0; layer < c.num_layers; ++layer)
    x = Gemma2Layer(c, ModulePath("model.layers") / layer, layer, x, positions);
  x = Gemma2Norm(c, x, ModulePath("model.norm"));
  x = Linear(x, ModulePath("lm_head"), c.vocab_size,
             {.weight = c.tied_head ? "model.embed_tokens.weight" : "lm_head.weight"});
  return c.logit_soft_cap > 0 ? SoftCap(x, ModulePath("lm_head.soft_cap"), c.logit_soft_cap) : x;
}

}  // namespace lamina
