#include "model/families/granite.h"

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {

void ReadGranite(JsonKeys& keys, ModelConfig& config) {
  ReadLlama(keys, config);
  const auto multiplier = [&](const char* key) {
    return keys.OptionalReal(key, kPositiveRange).value_or(1);
  };
  config.embedding_multiplier = multiplier("embedding_multiplier");
  config.residual_multiplier = multiplier("residual_multiplier");
  config.attention_multiplier = multiplier("attention_multiplier");
  config.logit_multiplier = 1 / multiplier("logits_scaling");
}

}  // namespace lamina
