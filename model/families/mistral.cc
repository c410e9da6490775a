#include "model/families/mistral.h"

#include <string>

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

// Experts of all layers together. Each is three weights of the graph.
constexpr int64_t kMaxExperts = 65'536;

Tensor MixtureOfExperts(const ModelConfig& c, const ModulePath& layer, Tensor x) {
  const ModulePath at = layer / "block_sparse_moe";
  const Tensor router = Linear(x, at / "gate", c.num_experts);
  const ExpertShape shape{.num_experts = c.num_experts,
                          .per_token = c.experts_per_token,
                          .intermediate_size = c.intermediate_size};
  return Experts(x, router, at / "experts", shape);
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
  config.num_experts = static_cast<int>(keys.Int("num_local_experts", {1, 1024}));
  config.experts_per_token = static_cast<int>(keys.Int("num_experts_per_tok", {1, 1024}));
  if (int64_t{config.num_experts} * config.num_layers > kMaxExperts)
    keys.Reject("num_local_experts", "at most " + std::to_string(kMaxExperts) + " in all layers");
  if (config.experts_per_token > config.num_experts)
    keys.Reject("num_experts_per_tok",
                "at most num_local_experts = " + std::to_string(config.num_experts));
}

Tensor MixtralForward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, MixtureOfExperts);
}

}  // namespace lamina
