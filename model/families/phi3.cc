#include "model/families/phi3.h"

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

// Rows of qkv_proj: those of q, of k, of v.
Tensor Phi3Attention(const ModelConfig& c, const ModulePath& layer_at, int layer, Tensor x,
                     Tensor positions) {
  const ModulePath at = layer_at / "self_attn";
  const int64_t q_width = int64_t{c.num_heads} * c.head_dim;
  const int64_t kv_width = int64_t{c.num_kv_heads} * c.head_dim;
  const auto project = [&](int64_t first, int64_t width) {
    return Linear(x, at / "qkv_proj", width, {.rows = {first, q_width + 2 * kv_width}});
  };
  const Tensor q = project(0, q_width);
  const Tensor k = project(q_width, kv_width);
  const Tensor v = project(q_width + kv_width, kv_width);
  return AttendRotated(c, at, layer, {q, k, v}, positions);
}

Tensor Phi3Layer(const ModelConfig& c, int layer, Tensor x, Tensor positions) {
  return LlamaLayerWith(c, layer, x, positions, {Phi3Attention, FusedMlp});
}

}  // namespace

void ReadPhi3(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config, 1);
  RequireBool(keys, "attention_bias", false);
  RequireBool(keys, "mlp_bias", false);
  ReadWindows(
      keys, 0, [](int) { return true; }, config);
}

Tensor Phi3Forward(const ModelConfig& c, Tensor tokens, Tensor positions) {
  return LlamaForwardWith(c, tokens, positions, Phi3Layer);
}

Tensor FusedMlp(const ModelConfig& c, const ModulePath& layer_at, int /*layer*/, Tensor x) {
  const ModulePath at = layer_at / "mlp";
  const int64_t n = c.intermediate_size;
  const Tensor gate = Linear(x, at / "gate_up_proj", n, {.rows = {0, 2 * n}});
  const Tensor up = Linear(x, at / "gate_up_proj", n, {.rows = {n, 2 * n}});
  return Linear(SiluMul(gate, up, at / "silu_mul"), at / "down_proj", c.hidden_size);
}

}  // namespace lamina
