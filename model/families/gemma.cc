#include "model/families/gemma.h"

#include <cmath>

#include "base/dtype.h"
#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

// Embeddings are scaled by the root of hidden_size. The models were trained with that factor
// rounded to the dtype of their weights.
double GemmaEmbeddingFactor(const ModelConfig& c) {
  const auto root = std::sqrt(static_cast<float>(c.hidden_size));
  switch (c.dtype) {
    case DType::kBF16: return ToFloat(ToBF16(root));
    case DType::kF16: return ToFloat(ToF16(root));
    case DType::kF32: return root;
    case DType::kF8:
    case DType::kI8Scaled:
    case DType::kF8Scaled: break;  // weights are never of these
  }
  return root;
}

// The checkpoint holds the weights of norms less 1.
Tensor GemmaNorm(const ModelConfig& c, Tensor x, const ModulePath& at) {
  return RmsNorm(x, at, {.eps = c.norm_eps, .plus = c.norm_plus});
}

Tensor GemmaMlp(const ModelConfig& c, const ModulePath& at, Tensor x) {
  const Tensor gate = Linear(x, at / "gate_proj", c.intermediate_size);
  const Tensor up = Linear(x, at / "up_proj", c.intermediate_size);
  return Linear(GeluMul(gate, up, at / "gelu_mul"), at / "down_proj", c.hidden_size);
}

Tensor GemmaLayer(const ModelConfig& c, const ModulePath& at, int layer, Tensor x,
                  Tensor positions) {
  const Tensor attention =
      LlamaAttention(c, at, layer, GemmaNorm(c, x, at / "input_layernorm"), positions);
  x = Add(x, GemmaNorm(c, attention, at / "post_attention_layernorm"), at / "attention_residual");
  const Tensor mlp = GemmaMlp(c, at / "mlp", GemmaNorm(c, x, at / "pre_feedforward_layernorm"));
  return Add(x, GemmaNorm(c, mlp, at / "post_feedforward_layernorm"), at / "mlp_residual");
}

// What both generations say in the same way.
void ReadGemma(JsonKeys& keys, ModelConfig& config) {
  ReadSizes(keys, "intermediate_size", config);
  if (!keys.Has("head_dim")) keys.Reject("head_dim", "the elements of a head");
  config.norm_eps = keys.Real("rms_norm_eps", {0, 1});
  config.norm_plus = 1;
  config.tied_head = keys.OptionalBool("tie_word_embeddings").value_or(true);
  config.qkv_bias = config.o_bias = keys.OptionalBool("attention_bias").value_or(false);
  config.query_pre_attn_scalar = keys.Real("query_pre_attn_scalar", kPositiveRange);
  RequireOneOf(keys, "hidden_activation", {"gelu_pytorch_tanh"});
}

// A missing key means `absent`, a null that there is no cap.
double ReadCap(JsonKeys& keys, const char* key, double absent) {
  return keys.OptionalReal(key, kPositiveRange).value_or(keys.IsNull(key) ? 0 : absent);
}

void ReadGemma3Rotary(JsonKeys& keys, ModelConfig& config) {
  config.rope_theta = 1e6;
  config.local_rope_theta = 1e4;
  if (ReadRotaryByType(keys, config)) return;
  ReadRotary(keys, config);
  config.local_rope_theta =
      keys.OptionalReal("rope_local_base_freq", kPositiveRange).value_or(config.local_rope_theta);
}

}  // namespace

void ReadGemma2(JsonKeys& keys, ModelConfig& config) {
  ReadGemma(keys, config);
  config.attention_soft_cap = ReadCap(keys, "attn_logit_softcapping", 50);
  config.logit_soft_cap = ReadCap(keys, "final_logit_softcapping", 30);
  ReadRotary(keys, config);
  ReadWindows(
      keys, 4096, [](int layer) { return layer % 2 == 0; }, config);
}

void ReadGemma3(JsonKeys& keys, ModelConfig& config) {
  ReadGemma(keys, config);
  config.head_norm = true;
  config.logit_soft_cap = ReadCap(keys, "final_logit_softcapping", 0);
  // Other implementations have no cap there, whatever the file says.
  if (keys.Has("attn_logit_softcapping"))
    keys.Reject("attn_logit_softcapping", "null", StatusCode::kUnimplemented);
  RequireBool(keys, "use_bidirectional_attention", false);
  ReadGemma3Rotary(keys, config);
  // Each pattern-th layer attends to all tokens.
  const int64_t pattern = keys.OptionalInt("sliding_window_pattern", {1, 1 << 20}).value_or(6);
  ReadWindows(
      keys, 4096, [pattern](int layer) { return (layer + 1) % pattern != 0; }, config);
}

Tensor GemmaForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  Tensor x = Embedding(tokens, ModulePath("model.embed_tokens"), c.vocab_size, c.hidden_size);
  x = Scale(x, ModulePath("model.embed_scale"), GemmaEmbeddingFactor(c));
  for (int layer = 0; layer < c.num_layers; ++layer)
    x = GemmaLayer(c, ModulePath("model.layers") / layer, layer, x, positions);
  x = GemmaNorm(c, x, ModulePath("model.norm"));
  x = HeadOf(c, x);
  return c.logit_soft_cap > 0 ? SoftCap(x, ModulePath("lm_head.soft_cap"), c.logit_soft_cap) : x;
}

}  // namespace lamina
