// Phi-3, Phi-3.5 and Phi-4, mini and medium: LLaMA's layers with fused projections, LongRoPE and,
// in Phi-4-mini, heads of which a part is rotated ("Phi-3 Technical Report", section 2).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Reads the keys of Phi3ForCausalLM.
void ReadPhi3(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor Phi3Forward(const ModelConfig& config, Tensor tokens, Tensor positions);

// silu(gate) * up below "<at>.mlp", where gate and up are the halves of "gate_up_proj".
Tensor FusedMlp(const ModelConfig& config, const ModulePath& at, int layer, Tensor x);

}  // namespace lamina
