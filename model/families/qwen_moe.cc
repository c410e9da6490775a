#include "model/families/qwen_moe.h"

#include <algorithm>
#include <string>
#include <vector>

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

Tensor QwenSharedExpert(const ModelConfig& c, const ModulePath& at, Tensor x) {
  const Tensor out = SwigluMlp(x, at / "shared_expert", c.shared_expert_size);
  return SigmoidGate(Linear(x, at / "shared_expert_gate", 1), out, at / "gated_shared_expert");
}

Tensor QwenMoeMlp(const ModelConfig& c, const ModulePath& layer_at, int layer, Tensor x) {
  if (!c.HasExperts(layer)) return LlamaMlp(c, layer_at, layer, x);
  const ModulePath at = layer_at / "mlp";
  const ExpertShape shape{.num_experts = c.num_experts,
                          .per_token = c.experts_per_token,
                          .intermediate_size = c.expert_size,
                          .routing = c.routing};
  const Tensor routed = Experts(x, Linear(x, at / "gate", c.num_experts), at / "experts", shape);
  if (c.shared_expert_size == 0) return routed;
  return Add(routed, QwenSharedExpert(c, at, x), at / "experts_sum");
}

Tensor QwenMoeLayer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  return LlamaLayerWith(c, layer, x, positions, {LlamaAttention, QwenMoeMlp});
}

// Experts are in every decoder_sparse_step-th layer, but not in those of mlp_only_layers.
void ReadDenseLayers(JsonKeys& keys, ModelConfig& config) {
  const int64_t step = keys.OptionalInt("decoder_sparse_step", {1, 1 << 20}).value_or(1);
  const std::vector<int64_t> listed =
      keys.IntOrList("mlp_only_layers", {0, int64_t{config.num_layers} - 1});
  if (!keys.status().ok()) return;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    config.dense_layers.push_back((layer + 1) % step != 0 ||
                                  std::ranges::find(listed, layer) != listed.end());
  }
}

void ReadQwenMoe(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config);
  ReadExperts(keys, "num_experts", config);
  config.expert_size = keys.Int("moe_intermediate_size", kWidthRange);
  if (!keys.OptionalBool("norm_topk_prob").value_or(false))
    config.routing = ExpertRouting::kSoftmaxOverAll;
  // Implementations do not agree which layers slide, and no published model has a window.
  RequireBool(keys, "use_sliding_window", false);
  ReadDenseLayers(keys, config);
}

}  // namespace

void ReadQwen2Moe(JsonKeys& keys, ModelConfig& config) {
  ReadQwenMoe(keys, config);
  config.qkv_bias = keys.OptionalBool("qkv_bias").value_or(true);
  config.shared_expert_size = keys.Int("shared_expert_intermediate_size", kWidthRange);
}

void ReadQwen3Moe(JsonKeys& keys, ModelConfig& config) {
  ReadQwenMoe(keys, config);
  config.qkv_bias = config.o_bias = keys.OptionalBool("attention_bias").value_or(false);
  config.head_norm = true;
}

Tensor QwenMoeForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, QwenMoeLayer);
}

}  // namespace lamina
