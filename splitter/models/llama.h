// LLaMA 1, 2 and 3 and their relatives with the same layout: RMSNorm before each block, rotary positions, grouped-query attention, SwiGLU.
#pragma once

#include "splitter/model_config.h"
#include "splitter/tracer.h"

namespace lamina {

// tokens, positions -> [vocab_size] logits, as in "LLaMA: Open and Efficient Foundation Language Models", section 2.2.
Tensor LlamaForward(const ModelConfig& config, Tensor tokens, Tensor positions);

}  // namespace lamina
