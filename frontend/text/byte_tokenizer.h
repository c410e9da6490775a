// A tokenizer for models that have none: each byte is a token. For modelled devices, which need prompts of some length and no language.
#pragma once

#include <memory>

#include "frontend/text/tokenizer.h"
#include "splitter/model_config.h"

namespace lamina {

// Byte b is token 3 + b, as the byte tokens of LLaMA's vocabulary; every other token reads as "?". kInvalidArgument if the model's
// vocabulary is too small for that.
Result<std::unique_ptr<Tokenizer>> MakeByteTokenizer(const ModelConfig& model);

}  // namespace lamina
