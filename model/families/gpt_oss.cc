#include "model/families/gpt_oss.h"

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

Tensor GptOssMlp(const ModelConfig& c, const ModulePath& layer_at, int /*layer*/, Tensor x) {
  const ModulePath at = layer_at / "mlp";
  const Tensor router = Linear(x, at / "router", c.num_experts, {.bias = true});
  const ExpertShape shape{.num_experts = c.num_experts,
                          .per_token = c.experts_per_token,
                          .intermediate_size = c.expert_size};
  return StackedExperts(x, router, at / "experts", shape,
                        {.take_turns = true, .bias = true, .swiglu_limit = c.swiglu_limit});
}

Tensor GptOssLayer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  return LlamaLayerWith(c, layer, x, positions, {LlamaAttention, GptOssMlp});
}

}  // namespace

void ReadGptOss(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config);
  config.qkv_bias = config.o_bias = keys.OptionalBool("attention_bias").value_or(true);
  config.attention_sinks = true;
  ReadExperts(keys, "num_local_experts", config);
  config.expert_size = config.intermediate_size;
  config.swiglu_limit = keys.OptionalReal("swiglu_limit", kPositiveRange).value_or(7);
  // Other implementations know no other value.
  const double alpha = keys.OptionalReal("swiglu_alpha", kPositiveRange).value_or(1.702);
  if (alpha != 1.702) keys.Reject("swiglu_alpha", "1.702", StatusCode::kUnimplemented);
  ReadWindows(
      keys, 128, [](int layer) { return layer % 2 == 0; }, config);
}

Tensor GptOssForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, GptOssLayer);
}

}  // namespace lamina
