// Gemma 2: norms before and behind each block, soft caps, a window in every other layer ("Gemma 2",
// section 2).
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

void ReadGemma2(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor Gemma2Forward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
