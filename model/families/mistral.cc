#include "model/families/mistral.h"

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

Tensor MixtralMlp(const ModelConfig& c, const ModulePath& layer_at, int /*layer*/, Tensor x) {
  const ModulePath at = layer_at / "block_sparse_moe";
  const Tensor router = Linear(x, at / "gate", c.num_experts);
  const ExpertShape shape{.num_experts = c.num_experts,
                          .per_token = c.experts_per_token,
                          .intermediate_size = c.expert_size,
                          .gate = "w1",
                          .up = "w3",
                          .down = "w2"};
  return Experts(x, router, at / "experts", shape);
}

Tensor MixtralLayer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  return LlamaLayerWith(c, layer, x, positions, {LlamaAttention, MixtralMlp});
}

}  // namespace

void ReadMistral(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config);
  ReadWindows(
      keys, 4096, [](int) { return true; }, config);
}

void ReadMixtral(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config);
  ReadWindows(
      keys, 0, [](int) { return true; }, config);
  ReadExperts(keys, "num_local_experts", config);
  config.expert_size = config.intermediate_size;
}

Tensor MixtralForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, MixtralLayer);
}

}  // namespace lamina
