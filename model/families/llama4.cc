#include "model/families/llama4.h"

#include <algorithm>
#include <vector>

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

// Heads of q and k are scaled to a mean square of 1 behind the rotation, which does not change it.
Tensor Rotated(const ModelConfig& c, int layer, Tensor heads, Tensor positions,
               const ModulePath& rope_at, const ModulePath& norm_at, int num_heads) {
  const Tensor rotated = Rope(heads, positions, rope_at, RotaryOf(c, layer, num_heads));
  if (!c.head_norm) return rotated;
  return HeadNorm(rotated, norm_at, num_heads, c.head_dim, {.eps = c.norm_eps, .weight = false});
}

Tensor Llama4Attention(const ModelConfig& c, const ModulePath& layer_at, int layer, Tensor x,
                       Tensor positions) {
  const ModulePath at = layer_at / "self_attn";
  auto [q, k, v] = ProjectQkv(c, at, x);
  if (c.IsRotated(layer)) {
    q = Rotated(c, layer, q, positions, at / "q_rope", at / "q_norm", c.num_heads);
    k = Rotated(c, layer, k, positions, at / "k_rope", at / "k_norm", c.num_kv_heads);
  } else if (c.query_growth_period > 0) {
    q = GrowByPosition(q, positions, at / "q_growth", c.query_growth, c.query_growth_period);
  }
  const Tensor out = Attention(q, k, v, at / "attention", AttentionOf(c, at, layer));
  return Linear(out, at / "o_proj", c.hidden_size, {.bias = c.o_bias});
}

Tensor Llama4Mlp(const ModelConfig& c, const ModulePath& layer_at, int layer, Tensor x) {
  const ModulePath at = layer_at / "feed_forward";
  if (!c.HasExperts(layer)) return SwigluMlp(x, at, c.intermediate_size);
  const ExpertShape shape{.num_experts = c.num_experts,
                          .per_token = c.experts_per_token,
                          .intermediate_size = c.expert_size,
                          .routing = c.routing};
  const Tensor router = Linear(x, at / "router", c.num_experts);
  const Tensor routed = StackedExperts(x, router, at / "experts", shape, {});
  return Add(SwigluMlp(x, at / "shared_expert", c.shared_expert_size), routed, at / "experts_sum");
}

Tensor Llama4Layer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  return LlamaLayerWith(c, layer, x, positions, {Llama4Attention, Llama4Mlp});
}

// Layers without a rotation attend to all tokens, unless the file says otherwise.
void ReadChunks(JsonKeys& keys, ModelConfig& config) {
  ReadRotatedLayers(keys, config);
  const int64_t chunk = keys.OptionalInt("attention_chunk_size", kPositionRange)
                            .value_or(keys.IsNull("attention_chunk_size") ? 0 : 8192);
  if (!keys.status().ok()) return;
  std::vector<bool> chunked = config.rotated_layers;
  if (keys.Has("layer_types"))
    chunked = ReadLayerTypes(keys, config.num_layers, "chunked_attention");
  if (chunk == 0 || !keys.status().ok()) return;
  config.windows.resize(static_cast<size_t>(config.num_layers));
  for (size_t layer = 0; layer < config.windows.size(); ++layer) {
    if (chunked[layer]) config.windows[layer] = {chunk, /*chunked=*/true};
  }
}

// Experts are in the layers that moe_layers lists, or in every interleave_moe_layer_step-th.
void ReadExpertLayers(JsonKeys& keys, ModelConfig& config) {
  const int64_t step = keys.OptionalInt("interleave_moe_layer_step", {1, 1 << 20}).value_or(1);
  const std::vector<int64_t> listed =
      keys.IntOrList("moe_layers", {0, int64_t{config.num_layers} - 1});
  if (!keys.status().ok()) return;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const bool has_experts = keys.Has("moe_layers")
                                 ? std::ranges::find(listed, layer) != listed.end()
                                 : (layer + 1) % step == 0;
    config.dense_layers.push_back(!has_experts);
  }
}

// The first files have a number of positions here, which every implementation takes for true.
bool GrowsQueries(JsonKeys& keys) {
  const nlohmann::json* const value = keys.Find("attn_temperature_tuning");
  if (value == nullptr) return true;
  if (value->is_number_integer()) return *value != 0;
  return keys.OptionalBool("attn_temperature_tuning").value_or(true);
}

}  // namespace

void ReadLlama4(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config);
  ReadExperts(keys, "num_local_experts", config);
  config.qkv_bias = config.o_bias = keys.OptionalBool("attention_bias").value_or(false);
  config.rope_interleaved = true;
  config.head_norm = keys.OptionalBool("use_qk_norm").value_or(true);
  config.expert_size = config.shared_expert_size = config.intermediate_size;
  config.intermediate_size = keys.OptionalInt("intermediate_size_mlp", kWidthRange).value_or(16384);
  config.routing = ExpertRouting::kSigmoidInputs;
  if (GrowsQueries(keys)) {
    config.query_growth = keys.OptionalReal("attn_scale", {0, 1e6}).value_or(0.1);
    config.query_growth_period = keys.OptionalReal("floor_scale", {1, 1e9}).value_or(8192);
  }
  ReadExpertLayers(keys, config);
  ReadChunks(keys, config);
}

Tensor Llama4Forward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, Llama4Layer);
}

}  // namespace lamina
