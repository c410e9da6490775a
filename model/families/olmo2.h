// OLMo 2 and 3: LLaMA's blocks with the norms behind them, and an RMSNorm over all heads of q
// together and over those of k ("2 OLMo 2 Furious", section 2.1). That norm needs all heads of a
// row, so tensor-parallel ranks cannot share its attention. OLMo 3 has windows in most layers,
// whose rotation is not rescaled.
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Reads the keys of Olmo2ForCausalLM and of Olmo3ForCausalLM.
void ReadOlmo2(JsonKeys& keys, ModelConfig& config);
void ReadOlmo3(JsonKeys& keys, ModelConfig& config);

// tokens, positions -> [vocab_size] logits.
Tensor Olmo2Forward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
