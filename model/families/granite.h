// Granite 3 and 4 without experts: LLaMA with multipliers of embeddings, scores, residuals and
// logits ("Granite 3.0 Language Models", section 2). The forward code is LlamaForward.
#pragma once

#include "base/json_keys.h"
#include "model/model_config.h"

namespace lamina {

// Reads the keys of GraniteForCausalLM.
void ReadGranite(JsonKeys& keys, ModelConfig& config);

}  // namespace lamina
