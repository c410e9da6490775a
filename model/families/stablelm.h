// StableLM 2 and StableLM 3B: LLaMA's blocks with LayerNorm, heads of which a part is rotated and,
// in the 12B release, a LayerNorm of each head of q and k, with both blocks behind one norm
// ("Stable LM 2 1.6B Technical Report", section 3.1).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Reads the keys of StableLmForCausalLM.
void ReadStableLm(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor StableLmForward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
